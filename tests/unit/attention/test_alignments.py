"""Softmax against its formula, and alignment configs."""

import math

import pytest
import torch

from heedful.attention.alignments import EntmaxAlignment, SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.config import AlignmentConfig, AttentionConfig
from heedful.config import validate_settings
from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError

VISIBLE = torch.ones(1, 1, 3, dtype=torch.bool)


def build_alignment(settings):
    return validate_settings(
        AttentionConfig, {"alignment": settings}, location="recipe.yaml"
    ).alignment.build(query_size=4)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_softmax_same_as_formula_with_temperature(temperature):
    scores = [0.3, -1.2, 2.0]
    powers = [math.exp(score / temperature) for score in scores]
    expected = torch.tensor([[[power / sum(powers) for power in powers]]])
    weights = SoftmaxAlignment(temperature).normalize(torch.tensor([[scores]]), VISIBLE)
    torch.testing.assert_close(weights, expected)


def test_config_passes_settings_to_alignment():
    assert build_alignment({"type": "softmax", "temperature": 0.5}).temperature == 0.5
    assert isinstance(build_alignment({"type": "sparsemax"}), SparsemaxAlignment)
    assert build_alignment({"type": "entmax"}).alpha == 1.5
    assert build_alignment({"type": "entmax", "alpha": 4}).alpha == 4
    learned = build_alignment({"type": "entmax", "alpha": 1.25, "learned": True})
    assert isinstance(learned, EntmaxAlignment)
    assert learned.alpha.item() == pytest.approx(1.25)
    assert [name for name, _ in learned.named_parameters()] == ["logit"]


SCHEMA = "`heedful recipes --schema` lists every setting and its values"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"type": "sparsmax"},
            "recipe.yaml: alignment.type: no alignment is called 'sparsmax'; did you mean "
            "'sparsemax'?\n"
            f"  choose from: {', '.join(sorted(map(type_of, types_in(AlignmentConfig))))}",
        ),
        (
            {"type": "softmax", "temperature": 0},
            "recipe.yaml: alignment.temperature: should be greater than 0, got 0\n  " + SCHEMA,
        ),
        (
            {"type": "entmax", "alpha": 1},
            "recipe.yaml: alignment.alpha: should be greater than 1, got 1\n  " + SCHEMA,
        ),
        (
            {"type": "entmax", "alpha": 2.5, "learned": True},
            "recipe.yaml: alignment: a learned alpha must start between 1 and 2, but is 2.5\n  "
            + SCHEMA,
        ),
    ],
)
def test_invalid_alignment_setting_raises(settings, message):
    with pytest.raises(ConfigError) as error:
        build_alignment(settings)
    assert str(error.value) == message
