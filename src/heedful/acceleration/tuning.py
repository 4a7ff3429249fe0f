"""Thresholds of speed, each with the measurement that chose it. None of them changes a result.

Unless another machine is named: two x86 cores with 2 MiB of level-2 cache each, float32.
`python -m benchmarks.additive` and `python -m benchmarks.decoding` repeat the measurements, and
`python -m benchmarks.gpu additive kernels` those on an H200.
"""

MAX_UNCHUNKED_ELEMENTS = 2**22
"""Size of the hidden layer (*B, T, S, A) up to which additive scores are computed at once.
A=256, forward and backward: with 16 queries per row chunks are faster from 2**19 elements on; with
one query recomputation costs 2x the time at 2**20, 1.4x at 2**22 and nothing from 2**23 on."""

CPU_CHUNK_ELEMENTS = 2**19
"""Hidden elements per chunk of additive scores on a CPU. B=16, T=S=128, A=256, forward and
backward: 461 ms at 2**15, 263 at 2**17, 201 at 2**19, 231 at 2**20; unchunked 988."""

MIN_LONG_CAUSAL = 1024
"""Positions from which a CPU checks whether a mask is causal, so that SDPA needs none: of 8,192
with 4 heads of 16 the check takes 0.1 s of a core and saves 1.5."""

GPU_CHUNK_ELEMENTS = 2**26
"""The same on a GPU. H200, B=16, T=S=A=512, forward and backward: 526 ms at 2**20, 129 at 2**22, 42
at 2**24, 36 at 2**26 and no less beyond; unchunked 29 ms, but 24 GiB of memory against 0.6."""

MIN_TRITON_ELEMENTS = 2**20
"""Size of the hidden layer from which additive scores are computed by Triton where it is installed;
both forms take three launches, so below it there is little to save."""

MIN_TRITON_QUERIES = 4
"""Queries per row from which additive scores are computed by Triton: a tile has 16."""

TRITON_SCORE_TILE = 16, 64, 2
"""Queries, keys and warps per program of additive scores in Triton. H200, B=64, T=S=A=512, float32:
1.74 ms; 1.80 with 16 x 128 and 4 warps, 2.04 with 32 x 64 and 4."""

TRITON_CHANNEL_GROUP = 2
"""Channels that share a reciprocal in additive scores, 2 or 4. Four have half the reciprocals of
pairs, but 1.98 ms in the same measurement."""

TRITON_GRADIENT_TILE = 16, 64, 2
"""Positions, pairs of channels and warps per program of their gradients. In the same measurement
5.03 ms; 5.17 with 4 warps, 5.34 with 32 positions and 4 warps."""

TRITON_STEP_TILE = 4096, 8
"""Elements of keys or values and warps per iteration of a step of additive attention in Triton.
H200, 320 rows, 512 keys, 512 channels, values of 1,024, float32: 287 us; with 4 warps 481, with
8,192 elements 419."""

TRITON_STEP_GRADIENT_TILE = 4096, 8
"""The same of its gradient."""

MAX_TRITON_STEP_ELEMENTS, MIN_TRITON_STEP_ROWS = 2**17, 128
"""Keys and values of a row, in elements, up to which a step is one launch, and the number of rows
from which it is at any length: one program reads a row, so few long rows leave most of the GPU
idle. H200, same sizes, in a CUDA graph, plain and Triton: 64 rows of 32 keys 36 and 24 us, of 128
keys 64 and 118; 320 rows of 32 keys 83 and 49, of 512 keys 701 and 481 (4 warps)."""

MAX_TRITON_STEP_SIZE = 2048
"""Channels and size of values up to which a step of additive attention is one launch; a program
holds all of them."""

MIN_DROPOUT_ELEMENTS = 2**12
"""Elements from which dropout on a CPU takes 16 random bits each. Neoverse N1, one thread, 819,200
elements: 9.1 ms by torch, 2.3 so; the calls that it takes more are 10 us."""

MIN_DEFERRED_LOGITS = 2**18
"""Logits of a batch from which their loss is computed with its gradients on a CPU. Neoverse N1, one
thread, 800 rows of 8,000: 66 ms by log-softmax, and about 30 so, beside the products."""

MAX_CPU_LOGITS = 2**25
"""Logits that are held at a time, and their probabilities: 128 MiB each."""

QUERY_CHUNK_SIZE = 512
"""Queries per chunk of compressed attention: the mask of all queries would grow with the square of
the length. With 16,384 queries over 5,461 positions of size 64 a process grows by 95 MiB."""

NUM_TABULATED_POSITIONS = 512
"""Positions whose sinusoidal encodings are kept in a table on a CPU. Two Neoverse-N1 cores, size
256: one position of 160 rows is computed in 1.8 ms and looked up in 0.1, 30 positions of 32 rows in
7.9 and 0.6."""

CANDIDATE_CHUNK_SIZE = 128
"""Tokens per chunk in the ranking of continuations: the fastest of 32, 64 and 128 for 160 rows of
8,000 tokens on a CPU."""

MIN_PACKED_ROWS, MAX_PACKED_ROWS = 2, 256
"""Rows for which a linear map is faster with its weight stored as (in, out). In between, torch's
(out, in) takes up to 1.9x the time (5 rows, 256 x 8,000: 550 us against 287 on two Xeon cores;
1.25x on a Neoverse-N1), and MKL's layout saves more (160 rows on one Xeon core: 7.3 ms, 5.3 so);
above there is no difference, and a single row is slower on Arm."""

MIN_REPEATS = 16
"""Products with the same number of rows after which packing a weight for exactly this number (MKL)
pays for itself."""

MAX_SHARED_BEAM_SIZE = 16
"""Hypotheses that share one key-value cache: each also scores the positions of all others."""

MAX_ROWS_OF_PLAIN_KEYS = 2
"""Hypotheses of a sentence up to which keys are stored by position; for more, transposed. One Xeon
core, 128 heads of 64, 31 positions: 5 queries take 494 us, 155 so, one 104 and 140 us."""

CACHE_GROWTH_FACTOR = 16
"""Positions that are allocated at once behind a full cache, as a multiple of those appended."""

MAX_CAPTURED_STEPS, MAX_CAPTURED_SHAPES = 256, 32
"""Decoding steps of a search, and batch shapes, that are kept as CUDA graphs; a step is captured in
about the time of two plain ones."""

NUM_PLAIN_BATCHES = 4
"""Batches after which those of a new shape are captured at once: capturing 20 steps takes 0.17 s,
running them plainly 0.10 s (H200, Transformer base, 64 sentences)."""

MIN_FREE_MEMORY = 0.2
"""Part of the memory of a GPU that must be free for another batch shape to be captured."""

STEPS_PER_CHECK = 4
"""Steps of greedy search on a GPU after which the host waits to see whether all sentences have
ended."""

TRITON_DECODING_TILE = 16, 1
"""Positions and warps per program of attention of one query in Triton. A step of a Transformer base
with 512 rows in bf16 takes 0.34 ms; 0.39 with 32 positions and 2 warps, 0.49 with 4 (H200)."""

STATIC_CACHE_CAPACITY = 32
"""Positions for which the key-value cache of a Transformer on a GPU is allocated at first; it is
doubled when it is full."""

NUM_DEVICE_POSITIONS = 512
"""Positions whose encodings are kept on a GPU."""

TRITON_NORM_ELEMENTS, TRITON_NORM_GRADIENT_ELEMENTS = 2048, 1024
"""Elements of a tile of whole rows in the kernels of dropout, residual sum and LayerNorm. H200,
24,992 rows of 512 in bfloat16, dropout 0.1: 0.029 ms forward at 2048, 0.036 at 512; forward and
backward 0.074 ms with gradients at 1024, 0.079 at 512."""

TRITON_NORM_PROGRAMS = 8
"""Programs of the gradient of LayerNorm per multiprocessor; each has a share of that of the
parameters. In the same measurement 0.085 ms with 4, 0.077 with 16."""

TRITON_ATTENTION_QUERIES = 64
"""Queries per block of attention over short memories."""

TRITON_ATTENTION_SCORES = 512
"""Scores per warp of attention over short memories. H200, 781 rows, 8 heads of 64, 32 queries and
keys in bfloat16, forward and backward: 0.108 ms with one warp, 0.105 with two, 0.127 with four;
SDPA 0.27 ms with a mask, 0.24 with its causal flag, FlashAttention 0.71, cuDNN 0.36."""

MAX_TRITON_KEYS = 128
"""Keys up to which attention is computed by one block per head in Triton."""

MAX_TRITON_HEAD_BYTES = 256
"""Size of a vector of a head up to which attention is computed in Triton: blocks of them are held
in shared memory."""

MIN_ATTENTION_BLOCK = 32
"""Queries and keys per block of attention at least; smaller blocks would only be compiled in
addition."""

TRITON_LONG_TILE, MAX_ATTENTION_WARPS = (64, 64), 4
"""Queries and keys per block of attention over long memories, and warps of a program at most."""

MAX_TRITON_NORM_SIZE = 8192
"""Size of vectors up to which residual sums and norms are computed in Triton: a program holds whole
rows."""

TRITON_RELU_TILE, TRITON_RELU_PROGRAMS = (16, 512), 128
"""Rows and columns of a tile of the gradient of ReLU, and programs that share the rows. H200,
24,992 rows from 512 to 2,048, forward and backward with all products: 0.331 ms; (8, 512) 0.339, 512
programs 0.346; plain modules 0.415."""

MAX_LOGITS = 2**29
"""Logits that cross-entropy holds at once: 1 GiB in bfloat16. H200, 24,992 targets, size 512,
forward and backward: 1.28 ms and 0.5 GiB with a vocabulary of 8,000 (plain code 4.4 ms and 2.3
GiB), 10.0 ms and 2.4 GiB with 64,000 (36.7 ms, 18.1 GiB), 48 ms and 3.3 GiB with 256,000."""

TRITON_LOGITS_BLOCK = 2048
"""Logits per step of the kernel of cross-entropy."""

TRITON_VOCABULARY_CHUNKS = 4096, 4096
"""Tokens that a program of greedy search reads at a time, and that one of beam search ranks: 64
beams of 5 rows take 36 us, 44 with 1024 tokens, 174 with torch's top-k (H200, vocabulary 8,000)."""

MIN_COMPACTED_ROWS = 256
"""Rows to which greedy search on a GPU reduces a batch in which half of the sentences have ended. A
step of a Transformer base takes 0.43 ms with 1024 rows, 0.34 with 512, 0.30 with 320, 0.26 with 64
(H200, bf16), so smaller batches save nothing."""
