"""Every score with every alignment in every wiring learns to copy, where together they can.

A diagonal of the matrix runs with `factory test`; the rest of it with `factory test-all`.
"""

from itertools import product

import pytest

from heedful.attention.additive_scores import ScoreFeatureConfig
from heedful.attention.composite_scores import ScoreConfig
from heedful.attention.config import AlignmentConfig
from heedful.config.base import type_of, types_in
from tests.learning.copying import share_copied

STEPS = 300
# These begin flat, or learn from what was drawn.
SLOW = {"scaled-dot", "sum", "rotary", "sampled", "straight-through", "gumbel-softmax"}

SCORES = {
    "dot": {"type": "dot"},
    "scaled-dot": {"type": "scaled-dot"},
    "bilinear": {"type": "bilinear"},
    "projected-dot": {"type": "projected-dot", "hidden_size": 24},
    "cosine": {"type": "cosine", "scale": 10.0, "learned": True},
    "trilinear": {"type": "trilinear"},
    "additive": {"type": "additive", "hidden_size": 24},
    "concat": {"type": "concat", "hidden_size": 24},
    "location": {"type": "location", "max_positions": 16},
    "relative-position-bias": {"type": "relative-position-bias"},
    "gaussian": {"type": "gaussian", "sigma": 0.5},
    "relative-key": {"type": "relative-key"},
    "rotary": {"type": "rotary"},
    "sum": {"type": "sum", "scores": [{"type": "scaled-dot"}, {"type": "alibi"}]},
}
for feature in types_in(ScoreFeatureConfig):
    kind = type_of(feature)
    SCORES[f"additive, {kind}"] = SCORES["additive"] | {"features": [{"type": kind}]}

ALIGNMENTS = {
    "softmax": {"type": "softmax"},
    "sparsemax": {"type": "sparsemax"},
    "entmax": {"type": "entmax"},
    "local": {"type": "local", "half_width": 4},
    "local by step": {
        "type": "local",
        "center": {"type": "monotonic"},
        "half_width": 2,
        "gaussian": "none",
    },
    "monotonic": {"type": "monotonic"},
    "chunkwise": {"type": "monotonic-chunkwise"},
    "monotonic-marginal": {"type": "monotonic-marginal"},
    "sampled": {"type": "sampled", "credit": "future"},
    "straight-through": {"type": "straight-through"},
    "gumbel-softmax": {"type": "gumbel-softmax"},
}

WIRINGS = ["attend-then-step", "step-then-attend"]

# What cannot learn to copy, by itself, and why.
UNABLE = {
    "linear": "under a softmax its weights do not follow the query",
    "alibi": "it has nothing to learn and prefers near places only slightly",
    "argmax": "no gradient reaches the scores",
}


def test_every_kind_is_in_the_matrix_or_said_to_be_unable():
    listed = {each["type"] for each in [*SCORES.values(), *ALIGNMENTS.values()]} | set(UNABLE)
    known = {type_of(each) for each in [*types_in(ScoreConfig), *types_in(AlignmentConfig)]}
    assert listed == known


DIAGONAL = list(
    dict.fromkeys(
        [
            *((score, "softmax", WIRINGS[number % 2]) for number, score in enumerate(SCORES)),
            *(("bilinear", align, WIRINGS[number % 2]) for number, align in enumerate(ALIGNMENTS)),
        ]
    )
)
REST = [each for each in product(SCORES, ALIGNMENTS, WIRINGS) if each not in DIAGONAL]

# These begin within a few hundredths of one another and grow slowly: products that have no matrix
# between them, and sums through a tanh.
FLAT = {"dot", "scaled-dot", "sum", "rotary", "trilinear", "additive", "concat"} | {
    "additive, last-context"
}
# What takes such scores for the chance of a single place hears them under the noise, or in what is
# drawn, only if they begin sharper.
SOFTMAX = {"type": "softmax", "temperature": 0.1}
SHARPER = {
    "monotonic": {"gain": 10.0},
    "chunkwise": {"boundaries": {"gain": 10.0}},
    "sampled": {"inner": SOFTMAX},
    "straight-through": {"inner": SOFTMAX},
    "gumbel-softmax": {"inner": SOFTMAX},
}


def learns(score, align, wiring, steps):
    settings = ALIGNMENTS[align] | (SHARPER.get(align, {}) if score in FLAT else {})
    attention = {"score": SCORES[score], "alignment": settings}
    return share_copied(attention, {"wiring": {"type": wiring}}, steps=steps) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize(("score", "align", "wiring"), DIAGONAL)
def test_a_mechanism_learns_to_copy(score, align, wiring):
    steps = 2 * STEPS if {score, align} & SLOW else STEPS
    assert learns(score, align, wiring, steps)


@pytest.mark.learning
@pytest.mark.parametrize(("score", "align", "wiring"), REST)
def test_every_other_mechanism_learns_to_copy(score, align, wiring):
    """Most need few steps; each gets up to eight times as many, from the beginning again."""
    assert any(learns(score, align, wiring, share * STEPS) for share in (1, 2, 4, 8))


@pytest.mark.learning
@pytest.mark.parametrize(
    ("score", "num_heads", "num_kv_heads"),
    [("scaled-dot", 2, 2), ("additive", 2, 2), ("bilinear", 4, 2)],
)
def test_many_heads_learn_to_copy(score, num_heads, num_kv_heads):
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    attention = {"score": SCORES[score], "multi_head": heads}
    assert share_copied(attention, steps=2 * STEPS) >= 0.8


@pytest.mark.diagonal
def test_heads_learn_to_copy():
    attention = {"score": SCORES["projected-dot"], "multi_head": {"num_heads": 2}}
    assert share_copied(attention, steps=STEPS) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize("align", ["softmax", "monotonic-marginal"])
def test_exact_hard_attention_learns_to_copy(align):
    attention = {
        "score": SCORES["bilinear"],
        "alignment": ALIGNMENTS[align],
        "readout": {"type": "per-position"},
    }
    wiring = {"type": "step-then-attend", "input_feeding": False}
    decoder = {"wiring": wiring, "output_head": {"type": "marginal"}}
    assert share_copied(attention, decoder, steps=STEPS) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize("score", ["linear", "alibi"])
def test_the_task_cannot_be_done_without_looking(score):
    assert share_copied({"score": {"type": score}}, steps=STEPS) <= 0.3
