"""Softmax against its formula, and what a configuration may say of alignments."""

import math

import pytest
import torch

from heedful.attention import Entmax, Softmax, Sparsemax
from heedful.attention.choices.alignments import AlignmentConfig
from heedful.attention.choices.attention import AttentionConfig
from heedful.config import resolve
from heedful.config.choice import kind_of, types_in
from heedful.errors import ConfigError

VISIBLE = torch.ones(1, 1, 3, dtype=torch.bool)


def align(settings):
    return resolve(AttentionConfig, {"align": settings}, origin="recipe.yaml").align.build(
        query_size=4
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_softmax_shares_by_the_exponential_of_score_over_temperature(temperature):
    scores = [0.3, -1.2, 2.0]
    powers = [math.exp(score / temperature) for score in scores]
    wanted = torch.tensor([[[power / sum(powers) for power in powers]]])
    weights = Softmax(temperature).share(torch.tensor([[scores]]), VISIBLE)
    torch.testing.assert_close(weights, wanted)


def test_a_tiny_temperature_finds_the_best_and_keeps_hidden_rows_at_zero():
    mask = torch.tensor([[[True, True, True], [False, False, False]]])
    weights = Softmax(1e-6).share(torch.tensor([[[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]]]), mask)
    assert weights.tolist() == [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]


def test_attention_aligns_by_a_plain_softmax_unless_told_otherwise():
    built = AttentionConfig().align.build(query_size=4)
    assert isinstance(built, Softmax)
    assert built.temperature == 1.0


def test_each_kind_builds_its_alignment_with_its_settings():
    assert align({"kind": "softmax", "temperature": 0.5}).temperature == 0.5
    assert isinstance(align({"kind": "sparsemax"}), Sparsemax)
    assert align({"kind": "entmax"}).alpha == 1.5
    assert align({"kind": "entmax", "alpha": 4}).alpha == 4
    learned = align({"kind": "entmax", "alpha": 1.25, "learned": True})
    assert isinstance(learned, Entmax)
    assert learned.alpha.item() == pytest.approx(1.25)
    assert [name for name, _ in learned.named_parameters()] == ["logit"]


SCHEMA = "`heedful recipes --schema` lists every setting and what it takes"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "sparsmax"},
            "recipe.yaml: align.kind: no align is called 'sparsmax'; did you mean 'sparsemax'?\n"
            f"  choose from: {', '.join(sorted(map(kind_of, types_in(AlignmentConfig))))}",
        ),
        (
            {"kind": "softmax", "temperature": 0},
            "recipe.yaml: align.temperature: should be greater than 0, found 0\n  " + SCHEMA,
        ),
        (
            {"kind": "entmax", "alpha": 1},
            "recipe.yaml: align.alpha: should be greater than 1, found 1\n  " + SCHEMA,
        ),
        (
            {"kind": "entmax", "alpha": 2.5, "learned": True},
            "recipe.yaml: align: a learned alpha starts between 1 and 2, not at 2.5\n  " + SCHEMA,
        ),
    ],
)
def test_a_setting_out_of_bounds_is_named_with_its_bounds(settings, message):
    with pytest.raises(ConfigError) as caught:
        align(settings)
    assert str(caught.value) == message
