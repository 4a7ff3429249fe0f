"""Every score with every alignment in every wiring learns to copy, where together they can.

A diagonal of the matrix runs with `make test`; the rest of it with `make test-all`.
"""

from itertools import product

import pytest

from heedful.attention.choices.alignments import AlignmentConfig
from heedful.attention.choices.features import FeatureConfig
from heedful.attention.choices.scores import ScoreConfig
from heedful.config.choice import kind_of, types_in
from tests.learning.copying import share_copied

STEPS = 300
# These begin flat, or learn from what was drawn.
SLOW = {"scaled-dot", "sum", "rotary", "sampled", "straight-through", "gumbel-softmax"}

SCORES = {
    "dot": {"kind": "dot"},
    "scaled-dot": {"kind": "scaled-dot"},
    "bilinear": {"kind": "bilinear"},
    "projected-dot": {"kind": "projected-dot", "hidden_size": 24},
    "cosine": {"kind": "cosine", "sharpness": 10.0, "learned": True},
    "trilinear": {"kind": "trilinear"},
    "additive": {"kind": "additive", "hidden_size": 24},
    "concat": {"kind": "concat", "hidden_size": 24},
    "location": {"kind": "location", "max_positions": 16},
    "relative-buckets": {"kind": "relative-buckets"},
    "gaussian": {"kind": "gaussian", "sigma": 0.5},
    "relative-keys": {"kind": "relative-keys"},
    "rotary": {"kind": "rotary"},
    "sum": {"kind": "sum", "scores": [{"kind": "scaled-dot"}, {"kind": "alibi"}]},
}
for feature in types_in(FeatureConfig):
    kind = kind_of(feature)
    SCORES[f"additive, {kind}"] = SCORES["additive"] | {"features": [{"kind": kind}]}

ALIGNMENTS = {
    "softmax": {"kind": "softmax"},
    "sparsemax": {"kind": "sparsemax"},
    "entmax": {"kind": "entmax"},
    "local": {"kind": "local", "reach": 4},
    "local by step": {"kind": "local", "centre": {"kind": "step"}, "reach": 2, "taper": "none"},
    "monotonic": {"kind": "monotonic"},
    "chunkwise": {"kind": "chunkwise"},
    "monotonic-marginal": {"kind": "monotonic-marginal"},
    "sampled": {"kind": "sampled", "credit": "future"},
    "straight-through": {"kind": "straight-through"},
    "gumbel-softmax": {"kind": "gumbel-softmax"},
}

WIRINGS = ["attend-then-step", "step-then-attend"]

# What cannot learn to copy, by itself, and why.
UNABLE = {
    "linear": "under a softmax its weights do not follow the query",
    "alibi": "it has nothing to learn and prefers near places only slightly",
    "argmax": "no gradient reaches the scores",
}


def test_every_kind_is_in_the_matrix_or_said_to_be_unable():
    listed = {each["kind"] for each in [*SCORES.values(), *ALIGNMENTS.values()]} | set(UNABLE)
    known = {kind_of(each) for each in [*types_in(ScoreConfig), *types_in(AlignmentConfig)]}
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
SOFTMAX = {"kind": "softmax", "temperature": 0.1}
SHARPER = {
    "monotonic": {"gain": 10.0},
    "chunkwise": {"boundaries": {"gain": 10.0}},
    "sampled": {"inner": SOFTMAX},
    "straight-through": {"inner": SOFTMAX},
    "gumbel-softmax": {"inner": SOFTMAX},
}


def learns(score, align, wiring, steps):
    settings = ALIGNMENTS[align] | (SHARPER.get(align, {}) if score in FLAT else {})
    attention = {"score": SCORES[score], "align": settings}
    return share_copied(attention, {"wiring": {"kind": wiring}}, steps=steps) >= 0.8


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
    ("score", "num_heads", "num_groups"),
    [("scaled-dot", 2, 2), ("additive", 2, 2), ("bilinear", 4, 2)],
)
def test_many_heads_learn_to_copy(score, num_heads, num_groups):
    heads = {"num_heads": num_heads, "num_groups": num_groups}
    attention = {"score": SCORES[score], "heads": heads}
    assert share_copied(attention, steps=2 * STEPS) >= 0.8


@pytest.mark.diagonal
def test_heads_learn_to_copy():
    attention = {"score": SCORES["projected-dot"], "heads": {"num_heads": 2}}
    assert share_copied(attention, steps=STEPS) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize("align", ["softmax", "monotonic-marginal"])
def test_exact_hard_attention_learns_to_copy(align):
    attention = {
        "score": SCORES["bilinear"],
        "align": ALIGNMENTS[align],
        "read": {"kind": "per-position"},
    }
    wiring = {"kind": "step-then-attend", "input_feeding": False}
    decoder = {"wiring": wiring, "emission": {"kind": "marginal"}}
    assert share_copied(attention, decoder, steps=STEPS) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize("score", ["linear", "alibi"])
def test_the_task_cannot_be_done_without_looking(score):
    assert share_copied({"score": {"kind": score}}, steps=STEPS) <= 0.3
