"""Guided alignment: the loss by its formula, and links that are found by the tokens of a pair."""

import numpy as np
import pytest
import torch

from heedful.aligners.links import Link
from heedful.attention.attention import Attention
from heedful.data.text.batching import collate_pairs
from heedful.errors import ConfigError
from heedful.tokenization.vocabulary import PAD
from heedful.training.guided_alignment import (
    LOSS_NAME,
    NO_LINKS,
    AlignmentGuide,
    LinkTable,
    hash_pairs,
)
from heedful.training.objectives import CrossEntropyObjective
from tests.catalogue import build

PAIRS = [([5, 6, 7], [4, 8]), ([9], [10, 4, 5, 6]), ([4, 4], [4])]
LINKS = [{Link(0, 0), Link(2, 0), Link(1, 1)}, {Link(0, 1), Link(0, 3)}, set()]
# Both directions, one and several heads, hard and sparse weights, one stack, several layers.
ATTENTIVE = [
    *("gru, attend-then-step", "heads", "alignment sampled", "alignment sparsemax"),
    *("transformer", "transformer, alignment head", "transformer, alignment sampled"),
    *("convolutional", "decoder only, span full"),
]


def table(pairs=PAIRS, links=LINKS):
    return LinkTable.from_links(hash_pairs(collate_pairs(pairs)), links)


def loss_by_formula(weights, links):
    """-sum_t sum_s g_ts log a_ts, with the links of a target token sharing one unit."""
    total = 0.0
    for row, row_links in zip(weights, links, strict=True):
        for target in {link.target for link in row_links}:
            sources = [link.source for link in row_links if link.target == target]
            total -= sum(np.log(max(row[target][s], 1e-8)) for s in sources) / len(sources)
    return total


def test_loss_equals_formula_and_ignores_targets_without_links():
    batch = collate_pairs(PAIRS)
    weights = torch.rand(3, 5, 4, dtype=torch.double).softmax(-1).requires_grad_()
    loss = AlignmentGuide(table(), 0.3).loss(weights, batch)
    expected = 0.3 * loss_by_formula(weights.detach().numpy(), LINKS)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert (weights.grad[2] == 0).all()
    assert (weights.grad[0, 2:] == 0).all()


def test_gradient_equals_finite_differences():
    guide, batch = AlignmentGuide(table(), 0.7), collate_pairs(PAIRS)
    scores = torch.randn(3, 5, 4, requires_grad=True)
    guide.loss(scores.softmax(-1), batch).backward()
    for index in [(0, 0, 0), (0, 0, 2), (0, 1, 3), (1, 3, 1)]:
        step = torch.zeros_like(scores)
        step[index] = 1e-2
        with torch.enable_grad():
            values = [guide.loss((scores + s).softmax(-1), batch).item() for s in (step, -step)]
        assert scores.grad[index].item() == pytest.approx((values[0] - values[1]) / 2e-2, abs=2e-3)


def test_links_do_not_depend_on_the_batch():
    links = table()
    whole = links.normalized_links(collate_pairs([*PAIRS, ([7] * 6, [8] * 7)]))
    assert (whole[3] == 0).all()  # a pair without links
    for row, pair in enumerate(PAIRS):
        (alone,) = links.normalized_links(collate_pairs([pair]))
        padded = whole[row, : alone.size(0), : alone.size(1)]
        assert torch.equal(padded, alone)
        assert whole[row].sum() == alone.sum()
    assert (NO_LINKS.normalized_links(collate_pairs(PAIRS)) == 0).all()


def test_exchanged_and_moved_tokens_have_other_hashes():
    pairs = [([4, 5], [6]), ([5, 4], [6]), ([6], [4, 5]), ([4], [5, 6]), ([4, 5, 6], [])]
    assert len(set(hash_pairs(collate_pairs(pairs)).tolist())) == len(pairs)


@pytest.mark.parametrize("name", ATTENTIVE)
def test_every_decoder_with_attention_is_guided(name):
    model, batch = build(name), collate_pairs(PAIRS)
    model.train()
    objective = CrossEntropyObjective()
    objective.guide = AlignmentGuide(table(), 0.5)
    torch.manual_seed(1)
    losses = objective(model, batch, 1, model)
    torch.manual_seed(1)
    plain = model(batch, need_weights=True)
    expected = 0.5 * loss_by_formula(plain.soft_weights.detach().numpy(), LINKS)
    assert losses.auxiliary_losses[LOSS_NAME].item() == pytest.approx(expected, rel=1e-4)
    losses.auxiliary_losses[LOSS_NAME].backward()
    is_trained = [
        bool(parameter.grad is not None and parameter.grad.any())
        for module in model.modules()
        if isinstance(module, Attention)
        for parameter in module.parameters()
    ]
    embedding = next(module for module in model.modules() if isinstance(module, torch.nn.Embedding))
    assert any(is_trained) or embedding.weight.grad.any()
    assert (batch.targets == PAD).any()


def test_model_without_attention_raises():
    model = build("gru, final-state")
    objective = CrossEntropyObjective()
    objective.guide = AlignmentGuide(table(), 0.5)
    with pytest.raises(ConfigError) as caught:
        objective(model, collate_pairs(PAIRS), 1, model)
    assert str(caught.value) == (
        "training.guided_alignment: this model has no attention weights that could be trained\n"
        "  remove training.guided_alignment, or choose a decoder with soft attention"
    )
