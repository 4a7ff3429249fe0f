"""TensorFlow Addons: its Bahdanau, Luong and monotonic attention, by the results its tests expect.

Its own tests (`seq2seq/tests/attention_wrapper_test.py`) hold the means of what a decoder with
attention returns for seeded random inputs. The same decoder runs here with heedful's attention. It
cannot run itself, because the TensorFlow of 0.23.0 needs numpy below 2.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import padding_mask
from heedful.attention.monotonic_alignment import MonotonicAlignment
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import BilinearScore

SEED = 87654321
LENGTHS, NUM_STEPS = torch.tensor([3, 2, 3, 1, 1]), 3
MEMORY_SIZE, CELL_SIZE, ATTENTION_SIZE = 10, 9, 6


class Means(NamedTuple):
    """Means that its tests expect, after three steps."""

    output: float  # of all steps
    sample_id: float  # argmax of the outputs
    hidden: float
    cell: float
    attention: float
    alignments: float
    alignment_history: float | None = None  # of all steps


EXPECTED = {  # test functions without the prefix `test_`
    "not_use_attention_layer": Means(0.078317143, 4.2, 0.89382392, 1.722382, 0.026356646, 0.125),
    "bahdanau_not_normalized": Means(
        -0.003204414, 3.2, 0.40868404, 0.89017969, 0.041453815, 0.125, 0.125
    ),
    "bahdanau_normalized": Means(-0.008089137, 2.8, 0.49166861, 1.01068615, 0.042427111, 0.125),
    "luong_not_normalized": Means(
        -0.06124732, 2.73333333, 0.52021580, 1.0964939, -0.0318060, 0.125
    ),
    "bahdanau_monotonic_not_normalized": Means(
        -0.009921653, 3.13333333, 0.44612807, 0.95786464, 0.038682378, 0.09778417, 0.10261579603
    ),
    "bahdanau_monotonic_normalized": Means(
        0.007140680, 3.26666666, 0.47012400, 1.0249618, 0.068432882, 0.0615656, 0.07909643
    ),
    "luong_monotonic_not_normalized": Means(
        0.003664831, 3.06666666, 0.54318606, 1.12592840, 0.059128221, 0.05112994, 0.06994973868
    ),
}


def random_inputs():
    """Return decoder inputs and encoder outputs as its seeded tests draw them."""
    rng = np.random.RandomState(SEED)
    rng.randn(64, 10, 256)  # inputs of other tests, which its seeding function draws first
    rng.randint(1, high=10, size=(64,))
    rng.randn(64, 12, 128)
    rng.randint(12, size=(64,))
    inputs, memory = rng.randn(5, 4, 7), rng.randn(5, 8, MEMORY_SIZE)
    return torch.from_numpy(inputs), torch.from_numpy(memory)


def philox(counter, key):
    """Return four random words of Philox 4x32-10 (Salmon et al. 2011)."""
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ counter[3] ^ key[1],
            first & 0xFFFFFFFF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def glorot_uniform(num_inputs, num_outputs, *, seed):
    """Return what TensorFlow's GlorotUniform(seed) draws after tf.random.set_seed(SEED)."""
    size = num_inputs * num_outputs
    words = [
        word for block in range(-(-size // 4)) for word in philox([block, 0, seed, 0], [SEED, 0])
    ]
    mantissas = torch.tensor(words[:size]) & 0x7FFFFF  # 23 bits of a float between 1 and 2
    limit = (6 / (num_inputs + num_outputs)) ** 0.5
    return ((mantissas.double() / 2**22 - 1) * limit).view(num_inputs, num_outputs)


def build_attention(name):
    """Build attention with ones for all of its matrices."""
    if "luong" in name:
        score = BilinearScore(CELL_SIZE, MEMORY_SIZE)
    else:
        score = AdditiveScore(CELL_SIZE, MEMORY_SIZE, hidden_size=3)
    for parameter in score.parameters():
        torch.nn.init.ones_(parameter)
    if (
        name.startswith("bahdanau") and "not_normalized" not in name
    ):  # g v / |v| with g = 1 / sqrt(size) and v = 1
        torch.nn.init.constant_(score.score_vector.weight, 1 / 3)
    alignment = SoftmaxAlignment()
    if "monotonic" in name:
        options = {"algorithm": "parallel", "inference": "expected"}
        alignment = MonotonicAlignment(bias=0.0, noise=0.0, **options)
    return SingleHeadAttention(score, alignment, WeightedSumReadout()).double().eval()


def lstm_step(inputs, hidden, cell):
    """Return h and c of an LSTM cell whose matrices are ones, with forget bias 1."""
    sums = (inputs.sum(-1, keepdim=True) + hidden.sum(-1, keepdim=True)).expand_as(hidden)
    cell = (sums + 1).sigmoid() * cell + sums.sigmoid() * sums.tanh()
    return sums.sigmoid() * cell.tanh(), cell


@torch.no_grad()
def run_decoder(name):
    """Run its AttentionWrapper around an LSTM cell for three steps."""
    inputs, values = random_inputs()
    attention, has_layer = build_attention(name), name != "not_use_attention_layer"
    layer = glorot_uniform(CELL_SIZE + MEMORY_SIZE, ATTENTION_SIZE, seed=1337)
    memory = attention.build_memory(values, padding_mask(LENGTHS, values.size(1)))
    state = attention.initial_state(memory)
    hidden = cell = torch.zeros(5, CELL_SIZE, dtype=torch.double)
    attended = torch.zeros(5, ATTENTION_SIZE if has_layer else MEMORY_SIZE, dtype=torch.double)
    outputs, alignments = [], []
    for step in range(NUM_STEPS):
        hidden, cell = lstm_step(torch.cat([inputs[:, step], attended], dim=-1), hidden, cell)
        output = attention(hidden.unsqueeze(1), memory, state)
        state, attended = output.state, output.context.squeeze(1)
        if has_layer:
            attended = torch.cat([hidden, attended], dim=-1) @ layer
        outputs.append(attended)
        alignments.append(output.weights.squeeze(1))
    results = torch.stack(outputs)
    means = results, results.argmax(-1).double(), hidden, cell, attended, alignments[-1]
    return Means(*(value.mean().item() for value in (*means, torch.stack(alignments))))


@pytest.mark.parametrize("name", EXPECTED)
def test_decoder_returns_the_means_that_tfa_tests_expect(name):
    actual, expected = run_decoder(name), EXPECTED[name]
    for field, value in expected._asdict().items():
        if value is not None:
            assert getattr(actual, field) == pytest.approx(value, abs=1e-6), field


def test_tfa_hard_monotonic_attention_same_as_inference():
    # Its mode "hard": the first position from the last one on with probability above 1/2, or none.
    scores = torch.randn(20, 4, 6, dtype=torch.double)
    actual = (
        MonotonicAlignment(bias=0.0).eval()(scores, torch.ones(1, 1, 6, dtype=torch.bool)).weights
    )
    for row, weights in zip(scores, actual, strict=True):
        position = 0
        for energies, row_weights in zip(row.tolist(), weights, strict=True):
            stops = [index for index in range(position, 6) if energies[index] > 0]
            position = stops[0] if stops else 6
            assert row_weights.nonzero().flatten().tolist() == stops[:1]
