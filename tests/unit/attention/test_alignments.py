"""Softmax against its formula, and what a configuration may say of alignments."""

import math

import pytest
import torch

from heedful.attention import EntmaxAlignment, SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.config import AlignmentConfig, AttentionConfig
from heedful.config import validate_settings
from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError

VISIBLE = torch.ones(1, 1, 3, dtype=torch.bool)


def align(settings):
    return validate_settings(
        AttentionConfig, {"alignment": settings}, location="recipe.yaml"
    ).alignment.build(query_size=4)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_softmax_shares_by_the_exponential_of_score_over_temperature(temperature):
    scores = [0.3, -1.2, 2.0]
    powers = [math.exp(score / temperature) for score in scores]
    wanted = torch.tensor([[[power / sum(powers) for power in powers]]])
    weights = SoftmaxAlignment(temperature).normalize(torch.tensor([[scores]]), VISIBLE)
    torch.testing.assert_close(weights, wanted)


def test_a_tiny_temperature_finds_the_best_and_keeps_hidden_rows_at_zero():
    mask = torch.tensor([[[True, True, True], [False, False, False]]])
    weights = SoftmaxAlignment(1e-6).normalize(
        torch.tensor([[[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]]]), mask
    )
    assert weights.tolist() == [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]


def test_attention_aligns_by_a_plain_softmax_unless_told_otherwise():
    built = AttentionConfig().alignment.build(query_size=4)
    assert isinstance(built, SoftmaxAlignment)
    assert built.temperature == 1.0


def test_each_kind_builds_its_alignment_with_its_settings():
    assert align({"type": "softmax", "temperature": 0.5}).temperature == 0.5
    assert isinstance(align({"type": "sparsemax"}), SparsemaxAlignment)
    assert align({"type": "entmax"}).alpha == 1.5
    assert align({"type": "entmax", "alpha": 4}).alpha == 4
    learned = align({"type": "entmax", "alpha": 1.25, "learned": True})
    assert isinstance(learned, EntmaxAlignment)
    assert learned.alpha.item() == pytest.approx(1.25)
    assert [name for name, _ in learned.named_parameters()] == ["logit"]


SCHEMA = "`heedful recipes --schema` lists every setting and what it takes"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"type": "sparsmax"},
            "recipe.yaml: alignment.type: no align is called 'sparsmax'; did you mean 'sparsemax'?\n"
            f"  choose from: {', '.join(sorted(map(type_of, types_in(AlignmentConfig))))}",
        ),
        (
            {"type": "softmax", "temperature": 0},
            "recipe.yaml: alignment.temperature: should be greater than 0, found 0\n  " + SCHEMA,
        ),
        (
            {"type": "entmax", "alpha": 1},
            "recipe.yaml: alignment.alpha: should be greater than 1, found 1\n  " + SCHEMA,
        ),
        (
            {"type": "entmax", "alpha": 2.5, "learned": True},
            "recipe.yaml: align: a learned alpha starts between 1 and 2, not at 2.5\n  " + SCHEMA,
        ),
    ],
)
def test_a_setting_out_of_bounds_is_named_with_its_bounds(settings, message):
    with pytest.raises(ConfigError) as caught:
        align(settings)
    assert str(caught.value) == message
