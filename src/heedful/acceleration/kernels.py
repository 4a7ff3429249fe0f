"""Registration of the kernels of all ops, and what decoding steps use of them.

Importing this module is all that it takes to use the kernels. Invariant: a kernel matches its
reference up to rounding; candidates may differ in the order of equal scores.
"""

import math
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from heedful.acceleration import chunked_attention, rnn_layers, tuning
from heedful.acceleration.cpu import training as cpu_training
from heedful.acceleration.cuda import training as cuda_training
from heedful.attention.additive_scores import (
    AdditiveScore,
    ConcatScore,
    CoverageFeature,
    additive_score,
)
from heedful.attention.alignments import AlignmentOutput, SoftmaxAlignment, mask_scores
from heedful.attention.attention import (
    AttentionOutput,
    SingleHeadAttention,
    attend,
    attend_with_scores,
    softmax_context,
)
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.positional_encoding import SinusoidalEncoding, SinusoidLayout
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import ScoreFunction
from heedful.layers.rnn import unroll
from heedful.search.candidates import Candidates, find_candidates, rank_all, to_candidates
from heedful.shapes import Context, Float, Int, Mask, Positions, Queries, Scores

LogProbs = Float[Tensor, "R N"]
CumulativeLogProbs = NDArray[np.float64]

TRITON_DEVICE_TYPE = "cuda"
TRITON_DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def needs_chunks(queries: Tensor, keys: Tensor, *_: object) -> bool:
    """Whether the hidden layer (*B, T, S, A) of additive scores is too large to be held."""
    if torch.compiler.is_exporting():  # a program for any length compares it with no limit
        return False
    return _num_hidden_elements(queries, keys) > tuning.MAX_UNCHUNKED_ELEMENTS


def can_score_with_triton(queries: Tensor, keys: Tensor, vector: Tensor) -> bool:
    """Whether additive scores are large enough for Triton, which is not traced by compilers."""
    return (
        queries.size(-2) >= tuning.MIN_TRITON_QUERIES
        and _runs_triton(queries, keys, vector)
        and _num_hidden_elements(queries, keys) >= tuning.MIN_TRITON_ELEMENTS
    )


def triton_additive_score(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Scores:
    """Kernel of `additive_score`; Triton is imported when it is first needed."""
    from heedful.acceleration.triton.additive_score import triton_additive_score

    return triton_additive_score(queries, keys, vector)


def can_score_unmasked_with_triton(
    attention: SingleHeadAttention, queries: Queries, memory: Memory, state: AttentionState | None
) -> bool:
    """Whether a score is additive, and large enough for Triton."""
    score = _as_additive(attention.score)
    return (
        score is not None
        and can_score_with_triton(queries, memory.keys, score.score_vector.weight)
        and not has_forward_hooks(score)
    )


def attend_to_unmasked_with_triton(
    attention: SingleHeadAttention, queries: Queries, memory: Memory, state: AttentionState | None
) -> AttentionOutput:
    """Kernel of `attend` whose scores skip what is masked; serves any alignment."""
    from heedful.acceleration.triton.additive_score import triton_additive_score

    additive, keys = _as_additive(attention.score), memory.keys
    assert additive is not None, attention.score
    if state is not None:
        for feature in additive.features:
            keys = keys + feature(state)
    projected, vector = additive.project_queries(queries), additive.score_vector.weight[0]
    scores = triton_additive_score(projected, keys, vector, memory.mask)
    return attend_with_scores(attention, scores, queries, memory, state)


def can_fuse_attention(
    attention: SingleHeadAttention, queries: Queries, memory: Memory, state: AttentionState | None
) -> bool:
    """Whether this is one query per row of additive attention with softmax, short or many."""
    values, keys, mask = memory
    score = _as_additive(attention.score)
    if score is None or not _runs_triton(queries, keys, values, score.score_vector.weight):
        return False
    is_softmax = type(attention.alignment_function) is SoftmaxAlignment
    is_standard = is_softmax and type(attention.readout) is WeightedSumReadout
    has_one_query = queries.dim() == 3 and queries.size(1) == 1 and mask.size(-2) == 1
    if not is_standard or not has_one_query:
        return False
    sizes = keys.size(-1), values.size(-1)
    is_short = keys.size(1) * sum(sizes) <= tuning.MAX_TRITON_STEP_ELEMENTS
    return (
        (is_short or queries.size(0) >= tuning.MIN_TRITON_STEP_ROWS)
        and 1 <= min(sizes) <= max(sizes) <= tuning.MAX_TRITON_STEP_SIZE
        and queries.shape[:1] == keys.shape[:1] == values.shape[:1] == mask.shape[:1]
        and not (attention.training and attention.dropout.p)
        and not any(has_forward_hooks(child) for child in attention.children())
    )


def fused_attend(
    attention: SingleHeadAttention, queries: Queries, memory: Memory, state: AttentionState | None
) -> AttentionOutput:
    """Kernel of `attend`: score, softmax, context and coverage of one query per row in Triton."""
    from heedful.acceleration.triton.additive_step import StepInputs, triton_step

    score, alignment = _as_additive(attention.score), attention.alignment_function
    assert score is not None, attention.score
    assert isinstance(alignment, SoftmaxAlignment), alignment
    values, keys, mask = memory
    coverage_vector = None
    for feature in score.features if state is not None else ():
        if type(feature) is CoverageFeature:
            weight = feature.projection.weight[:, 0]
            coverage_vector = weight if coverage_vector is None else coverage_vector + weight
        else:
            keys = keys + feature(state)  # (B, S, A)
    projected, vector = score.project_queries(queries).squeeze(1), score.score_vector.weight[0]
    inputs = StepInputs(projected, keys, values, vector, coverage_vector, mask.squeeze(1))
    step = triton_step(inputs, state, alignment.temperature)
    if state is not None:
        assert step.num_queries is not None
        assert step.coverage is not None
        state = AttentionState(
            step.num_queries, step.weights, step.coverage, step.context, state.uniform_sample
        )
    weights = step.weights.unsqueeze(1)
    return AttentionOutput(step.context.unsqueeze(1), weights, AlignmentOutput(weights), state)


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether a forward hook of a module or its children would miss a call."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def _as_additive(score: ScoreFunction) -> AdditiveScore | ConcatScore | None:
    # Exact types: a subclass may compute something else.
    is_exact = type(score) in {AdditiveScore, ConcatScore}
    return cast(AdditiveScore | ConcatScore, score) if is_exact else None


def _runs_triton(*tensors: Tensor) -> bool:
    if tensors[0].device.type != TRITON_DEVICE_TYPE or torch.compiler.is_compiling():
        return False
    return all(
        tensor.device.type == TRITON_DEVICE_TYPE and tensor.dtype in TRITON_DTYPES
        for tensor in tensors
    )


def _num_hidden_elements(queries: Tensor, keys: Tensor) -> int:
    # `torch.broadcast_shapes` would take as long as the scores of a step of few rows.
    leading = zip_longest(reversed(queries.shape[:-2]), reversed(keys.shape[:-2]), fillvalue=1)
    return math.prod((*map(max, leading), queries.size(-2), *keys.shape[-2:]))


def has_single_cpu_query(queries: Tensor, memory: Memory, *_: object) -> bool:
    """Whether there is one query per row, on a CPU, and no values are shared by multiple heads."""
    is_shared = queries.shape[:-2] != memory.values.shape[:-2]
    return queries.size(-2) == 1 and queries.device.type == "cpu" and not is_shared


def single_query_context(
    queries: Queries, memory: Memory, temperature: float, dropout: float
) -> Context:
    """Kernel of `softmax_context` that holds the weights, which are small for one query.

    Up to ten times as fast as SDPA, which copies the keys (160 rows, 4 heads, 14 to 28 positions).
    """
    scores = mask_scores(queries / temperature @ memory.keys.mT, memory.mask)
    weights = scores.softmax(dim=-1) * memory.mask
    return functional.dropout(weights, dropout) @ memory.values


def has_queries(queries: Tensor, *_: object) -> bool:
    """Whether there is one: without, torch 2.11 divides by zero, which ends the process."""
    return queries.numel() > 0


def sdpa_context(queries: Queries, memory: Memory, temperature: float, dropout: float) -> Context:
    """Kernel of `softmax_context` by torch's SDPA, which never holds the weights (*B, T, S).

    A NaN in a key that some queries see and others do not reaches all of them, since torch adds its
    mask to the scores; in the reference it reaches only those that see the key.
    """
    values, keys, mask = memory
    shape = (*queries.shape[:-1], values.size(-1))
    mask = mask[(None,) * (queries.dim() - mask.dim())]
    attend_4d = partial(
        functional.scaled_dot_product_attention,
        _to_4d(queries),
        scale=1 / temperature,
        enable_gqa=queries.shape[:-2] != keys.shape[:-2],
    )
    if is_long_causal(queries, mask) and not dropout:
        return attend_4d(_to_4d(keys), _to_4d(values), is_causal=True).view(shape)
    mask = mask.expand(*queries.shape[:-3], *mask.shape[-3:])
    key_is_visible = mask.any(dim=-2).unsqueeze(-1)  # (*B, S, 1)
    # Without a mask torch returns zeros for a query of NaN, as if it saw nothing: so the mask is
    # passed even where it hides nothing.
    visible_keys = _to_4d(keys.masked_fill(~key_is_visible, 0))
    context = attend_4d(visible_keys, _to_4d(values), attn_mask=_to_4d(mask), dropout_p=dropout)
    return context.view(shape).masked_fill(~mask.any(dim=-1, keepdim=True), 0)


def is_long_causal(queries: Queries, mask: Mask) -> bool:
    """Whether, on a CPU, many finite queries of one row see themselves and all before them.

    Then torch needs no mask, which it would read for each head: 8,192 positions take an eighth.
    """
    if queries.device.type != "cpu" or torch.compiler.is_compiling():  # sizes may be symbols
        return False
    size = mask.size(-1)
    if size < tuning.MIN_LONG_CAUSAL or mask.size(-2) != size or mask.numel() != size**2:
        return False
    bits = np.packbits(mask.numpy(), axis=-1).reshape(size, -1)
    return np.array_equal(bits, _packed_causal(size)) and bool(queries.isfinite().all())


@lru_cache(maxsize=1)
def _packed_causal(size: int) -> NDArray[np.uint8]:
    """Return a causal mask as bits, which are compared four times as fast as Booleans."""
    return np.packbits(np.tri(size, dtype=bool), axis=1)


def _to_4d(inputs: Tensor) -> Tensor:
    return inputs[None, None].flatten(0, -4)


class TabulatedSinusoids(SinusoidalEncoding):
    """Sinusoids of small positions from a table; a GPU would have to wait to check their range."""

    @override
    def forward(
        self, positions: Positions, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        is_eager = type(positions) is Tensor and not torch.compiler.is_compiling()
        if positions.device.type == "cpu" and is_eager:
            with suppress(IndexError):
                return functional.embedding(
                    positions, _sinusoid_table(self.size, self.layout, dtype)
                )
        return super().forward(positions, dtype)


@lru_cache(maxsize=16)
def _sinusoid_table(
    size: int, layout: SinusoidLayout, dtype: torch.dtype
) -> Float[Tensor, "positions E"]:
    with torch.inference_mode(mode=False):
        positions = torch.arange(tuning.NUM_TABULATED_POSITIONS, device="cpu")
        return SinusoidalEncoding(size, layout=layout)(positions, dtype)


# The kernels of `find_candidates` do not sort a whole vocabulary. The tokens of a row are split
# into chunks. A continuation among the best C lies in one of the C chunks with the largest maxima,
# so one pass finds the maxima and only the tokens of C chunks are ranked.


def can_rank_in_chunks(allowed_log_probs: Tensor, _: Any, __: Any, num_candidates: int) -> bool:
    """Whether there are enough chunks to leave some out."""
    return _num_chunks(allowed_log_probs) > 2 * num_candidates


def find_candidates_in_chunks(
    allowed_log_probs: LogProbs,
    model_log_probs: LogProbs,
    cumulative_log_probs: CumulativeLogProbs,
    num_candidates: int,
) -> Candidates:
    """Kernel of `find_candidates` that does not synchronize before the result is copied."""
    chunk_size, size = tuning.CANDIDATE_CHUNK_SIZE, allowed_log_probs.size(1)
    num_chunks = _num_chunks(allowed_log_probs)
    dtype = torch.promote_types(model_log_probs.dtype, torch.float32)
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.device, dtype)
    first_rows = totals.size(1) * torch.arange(len(totals), device=totals.device)[:, None]
    chunks = _best_chunks(allowed_log_probs, totals, num_candidates)  # (beams, C) of K * chunks
    rows, starts = first_rows + chunks // num_chunks, chunks % num_chunks * chunk_size
    fitting = starts.clamp(max=size - chunk_size)
    windows = _windows(allowed_log_probs, rows * size + fitting)
    if size % chunk_size:
        offsets = torch.arange(chunk_size, device=rows.device)
        windows.masked_fill_(offsets < (starts - fitting).unsqueeze(-1), -torch.inf)
    extended_totals = windows + totals.flatten()[rows].unsqueeze(-1)
    best, indices = extended_totals.flatten(1).topk(num_candidates)
    chosen = indices // chunk_size
    tokens = fitting.gather(1, chosen) + indices % chunk_size
    return to_candidates(best, rows.gather(1, chosen), tokens, model_log_probs)


def can_rank_with_numpy(_: Any, model_log_probs: Tensor, *__: object) -> bool:
    """Whether log-probabilities are on the CPU, in a precision in which scores are added."""
    is_wide = model_log_probs.dtype in {torch.float32, torch.float64}
    return is_wide and model_log_probs.device.type == "cpu"


def find_candidates_with_numpy(
    allowed_log_probs: LogProbs,
    model_log_probs: LogProbs,
    cumulative_log_probs: CumulativeLogProbs,
    num_candidates: int,
) -> Candidates:
    """Kernel of `find_candidates` on a CPU: numpy has less overhead than torch for small arrays."""
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.dtype)
    if num_candidates == totals.size(1) == 1:
        tokens = allowed_log_probs.numpy().argmax(axis=1)[:, None]
        rows = np.arange(len(tokens))[:, None]
    else:
        rows, tokens = _rank_with_numpy(allowed_log_probs, totals, num_candidates)
    scores = totals.numpy().reshape(-1)[rows] + allowed_log_probs.numpy()[rows, tokens]
    log_probs = model_log_probs.numpy()[rows, tokens].astype(np.float64)
    return Candidates(scores.astype(np.float64), log_probs, tokens, rows, np.zeros_like(tokens))


def _rank_with_numpy(
    log_probs: LogProbs, totals: Float[Tensor, "U K"], num_candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows and tokens of the best continuations of each beam."""
    chunk_size, size = tuning.CANDIDATE_CHUNK_SIZE, log_probs.size(1)
    num_chunks = _num_chunks(log_probs)
    beams = np.arange(len(totals))[:, None]
    first_rows = totals.size(1) * beams
    if num_chunks <= 2 * num_candidates:
        indices = rank_all(log_probs, totals, num_candidates)[1].numpy()
        row_in_beam, tokens = np.divmod(indices, size)
        return first_rows + row_in_beam, tokens
    chunks = _best_chunks(log_probs, totals, num_candidates).numpy()
    row_in_beam, chunk_in_row = np.divmod(chunks, num_chunks)
    rows, starts = first_rows + row_in_beam, chunk_in_row * chunk_size
    fitting = np.minimum(starts, size - chunk_size)
    windows = _windows(log_probs, torch.from_numpy(rows * size + fitting))
    if size % chunk_size:
        windows.numpy()[starts > fitting, : -(size % chunk_size)] = -np.inf
    row_totals = torch.from_numpy(totals.numpy()[beams, row_in_beam])
    extended_totals = windows.add_(row_totals.unsqueeze(-1)).flatten(1)
    indices = extended_totals.topk(num_candidates).indices.numpy()
    chosen, offsets = np.divmod(indices, chunk_size)
    return rows[beams, chosen], fitting[beams, chosen] + offsets


def _num_chunks(log_probs: LogProbs) -> int:
    return -(-log_probs.size(1) // tuning.CANDIDATE_CHUNK_SIZE)


def _best_chunks(log_probs: LogProbs, totals: Float[Tensor, "U K"], k: int) -> Int[Tensor, "U C"]:
    """Return the k chunks of each beam with the largest maxima; a last one may be shorter."""
    whole = log_probs.size(1) // tuning.CANDIDATE_CHUNK_SIZE * tuning.CANDIDATE_CHUNK_SIZE
    maxima = log_probs[:, :whole].unflatten(1, (-1, tuning.CANDIDATE_CHUNK_SIZE)).amax(dim=-1)
    if whole < log_probs.size(1):
        maxima = torch.cat([maxima, log_probs[:, whole:].amax(dim=-1, keepdim=True)], dim=1)
    return (totals.view(-1, 1) + maxima).view(len(totals), -1).topk(k).indices


def _windows(log_probs: LogProbs, starts: Int[Tensor, "U C"]) -> Float[Tensor, "U C chunk"]:
    """Return the chunks from these flattened indices on; a short one is filled up from its left."""
    windows = log_probs.flatten().unfold(0, tuning.CANDIDATE_CHUNK_SIZE, 1)  # a view, not a copy
    return windows.index_select(0, starts.flatten()).unflatten(0, starts.shape)


if find_spec("triton") is not None:
    cuda_training.register()
    attend.register("triton", fused_attend, can_fuse_attention)
    attend.register("triton", attend_to_unmasked_with_triton, can_score_unmasked_with_triton)
    additive_score.register("triton", triton_additive_score, can_score_with_triton)
additive_score.register("chunked", chunked_attention.chunked_additive_score, needs_chunks)
softmax_context.register("single-query", single_query_context, has_single_cpu_query)
cpu_training.register()
softmax_context.register("sdpa", sdpa_context, has_queries)
find_candidates.register("numpy", find_candidates_with_numpy, can_rank_with_numpy)
find_candidates.register("chunked", find_candidates_in_chunks, can_rank_in_chunks)
unroll.register("torch", rnn_layers.torch_unroll, rnn_layers.has_kernel)
