"""Intra-attention attends to appended states, and not to masked ones."""

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.scores import DotScore
from heedful.layers.self_attentive_cells import IntraAttention, StateHistory

E, D, V, ROWS = 2, 3, 5, 4


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)


def history_of(intra_attention, length):
    history = intra_attention.initial_state(random(ROWS, V))
    for _ in range(length):
        history = intra_attention.append(history, random(ROWS, V))
    return history


def test_empty_history_returns_last_context():
    intra_attention, context = (
        IntraAttention(DotScore(), hidden_size=D, query_uses_input=False),
        random(ROWS, V),
    )
    history = intra_attention.initial_state(context)
    assert [part.size(1) for part in history] == [0, 0, 0]
    assert intra_attention(random(ROWS, E), context, history) is context


def test_query_is_hidden_part_of_context_and_values_are_whole_entries():
    intra_attention = IntraAttention(DotScore(), hidden_size=D, query_uses_input=False)
    history, context = history_of(intra_attention, 4), random(ROWS, V)
    weights = torch.einsum("bd,bsd->bs", context[:, :D], history.values[..., :D]).softmax(dim=-1)
    expected = torch.einsum("bs,bsv->bv", weights, history.values)
    torch.testing.assert_close(intra_attention(random(ROWS, E), context, history), expected)


def test_keys_prepared_once_when_appended():
    prepared = []

    class RecordingScore(AdditiveScore):
        def prepare_keys(self, keys):
            prepared.append(keys.size(-2))
            return super().prepare_keys(keys)

    score = RecordingScore(E + D, D, hidden_size=2).double()
    intra_attention = IntraAttention(score, hidden_size=D, query_uses_input=True)
    history = history_of(intra_attention, 3)
    intra_attention(random(ROWS, E), random(ROWS, V), history)
    assert prepared == [0, 1, 1, 1]
    torch.testing.assert_close(history.keys, score.key_projection(history.values[..., :D]))


def test_masked_entries_have_no_influence():
    intra_attention = IntraAttention(DotScore(), hidden_size=D, query_uses_input=False)
    history, context = history_of(intra_attention, 5), random(ROWS, V)
    is_visible = torch.tensor([True, True, False, False, True])
    masked = history._replace(mask=is_visible[None, :, None].expand(ROWS, -1, -1))
    without = StateHistory(*(part[:, is_visible] for part in history))
    inputs = random(ROWS, E)
    torch.testing.assert_close(
        intra_attention(inputs, context, masked), intra_attention(inputs, context, without)
    )


def test_score_with_history_raises():
    score = AdditiveScore(D, D, hidden_size=2, features=[CoverageFeature(2)])
    with pytest.raises(AssertionError, match="no attention history"):
        IntraAttention(score, hidden_size=D, query_uses_input=False)
