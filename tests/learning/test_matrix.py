"""Every score with every alignment in every wiring learns to copy, if the combination can.

A diagonal of the matrix runs with `make test-learning`; the rest of it with `make test-all`.
"""

from itertools import product

import pytest

from heedful.attention.additive_scores import ScoreFeatureConfig
from heedful.attention.config import AlignmentConfig, ScoreConfig
from heedful.config.base import type_of, types_in
from tests.learning.copying import copied_fraction

STEPS = 300
# These start with uniform weights, or learn from samples.
SLOW = {"scaled-dot", "sum", "rotary", "sampled", "straight-through", "gumbel-softmax"}

SCORES = {
    "dot": {"type": "dot"},
    "scaled-dot": {"type": "scaled-dot"},
    "bilinear": {"type": "bilinear"},
    "projected-dot": {"type": "projected-dot", "hidden_size": 24},
    "tanh-dot": {"type": "tanh-dot", "hidden_size": 24},
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
    "fixed diagonal": {"type": "fixed", "pattern": "diagonal"},
}

WIRINGS = ["attend-then-step", "step-then-attend"]

# Cannot learn to copy, and why.
CANNOT_LEARN = {
    "linear": "under a softmax its weights do not follow the query",
    "alibi": "it has no parameters and prefers near positions only slightly",
    "argmax": "no gradient reaches the scores",
}


def test_matrix_covers_every_score_and_alignment():
    tested = {each["type"] for each in [*SCORES.values(), *ALIGNMENTS.values()]} | set(CANNOT_LEARN)
    all_types = {type_of(each) for each in [*types_in(ScoreConfig), *types_in(AlignmentConfig)]}
    assert tested == all_types


DIAGONAL = list(
    dict.fromkeys(
        [
            *((score, "softmax", WIRINGS[index % 2]) for index, score in enumerate(SCORES)),
            *(
                ("bilinear", alignment, WIRINGS[index % 2])
                for index, alignment in enumerate(ALIGNMENTS)
            ),
        ]
    )
)
REST = [each for each in product(SCORES, ALIGNMENTS, WIRINGS) if each not in DIAGONAL]

# Scores that start almost equal and grow slowly: products without a matrix, and sums through tanh.
FLAT = {"dot", "scaled-dot", "sum", "rotary", "trilinear", "additive", "concat"} | {
    "additive, last-context"
}
# Alignments that sample, or add noise, learn from such scores only if they start sharper.
SOFTMAX = {"type": "softmax", "temperature": 0.1}
SHARPER = {
    "monotonic": {"gain": 10.0},
    "chunkwise": {"boundaries": {"gain": 10.0}},
    "sampled": {"inner": SOFTMAX},
    "straight-through": {"inner": SOFTMAX},
    "gumbel-softmax": {"inner": SOFTMAX},
}


def learns_to_copy(score, alignment, wiring, steps):
    settings = ALIGNMENTS[alignment] | (SHARPER.get(alignment, {}) if score in FLAT else {})
    attention = {"score": SCORES[score], "alignment": settings}
    return copied_fraction(attention, {"wiring": {"type": wiring}}, steps=steps) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize(("score", "alignment", "wiring"), DIAGONAL)
def test_attention_learns_to_copy(score, alignment, wiring):
    steps = 2 * STEPS if {score, alignment} & SLOW else STEPS
    assert learns_to_copy(score, alignment, wiring, steps)


@pytest.mark.learning
@pytest.mark.parametrize(("score", "alignment", "wiring"), REST)
def test_every_other_attention_learns_to_copy(score, alignment, wiring):
    """Most need few steps; each may restart with up to eight times as many."""
    assert any(learns_to_copy(score, alignment, wiring, factor * STEPS) for factor in (1, 2, 4, 8))


@pytest.mark.learning
@pytest.mark.parametrize(
    ("score", "num_heads", "num_kv_heads"),
    [("scaled-dot", 2, 2), ("additive", 2, 2), ("bilinear", 4, 2)],
)
def test_multi_head_scores_learn_to_copy(score, num_heads, num_kv_heads):
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    attention = {"score": SCORES[score], "multi_head": heads}
    assert copied_fraction(attention, steps=2 * STEPS) >= 0.8


@pytest.mark.diagonal
def test_multi_head_attention_learns_to_copy():
    attention = {"score": SCORES["projected-dot"], "multi_head": {"num_heads": 2}}
    assert copied_fraction(attention, steps=STEPS) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "alignment", [pytest.param("softmax", marks=pytest.mark.slow), "monotonic-marginal"]
)
def test_marginal_head_learns_to_copy(alignment):
    attention = {
        "score": SCORES["bilinear"],
        "alignment": ALIGNMENTS[alignment],
        "readout": {"type": "per-position"},
    }
    wiring = {"type": "step-then-attend", "input_feeding": False}
    decoder = {"wiring": wiring, "output_head": {"type": "marginal"}}
    assert copied_fraction(attention, decoder, steps=STEPS) >= 0.8


@pytest.mark.diagonal
def test_adaptive_attention_learns_to_copy():
    decoder = {"cell": "lstm", "wiring": {"type": "adaptive"}}
    assert copied_fraction({"score": SCORES["additive"]}, decoder, steps=STEPS) >= 0.8


@pytest.mark.diagonal
@pytest.mark.parametrize("score", ["linear", "alibi"])
def test_copying_needs_content_based_attention(score):
    assert copied_fraction({"score": {"type": score}}, steps=STEPS) <= 0.3
