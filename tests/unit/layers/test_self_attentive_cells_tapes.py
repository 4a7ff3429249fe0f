"""Tapes: what is written is found, and what is not seen is not."""

import pytest
import torch

from heedful.attention import AdditiveScore, DotScore
from heedful.attention.additive_scores import CoverageFeature
from heedful.layers.self_attentive_cells import IntraAttention, StateHistory

E, D, V, ROWS = 2, 3, 5, 4


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)


def written(past, places):
    tape = past.initial_state(random(ROWS, V))
    for _ in range(places):
        tape = past.append(tape, random(ROWS, V))
    return tape


def test_an_empty_tape_leaves_the_context_as_it_is():
    past, context = (
        IntraAttention(DotScore(), hidden_size=D, query_uses_input=False),
        random(ROWS, V),
    )
    tape = past.initial_state(context)
    assert [part.size(1) for part in tape] == [0, 0, 0]
    assert past(random(ROWS, E), context, tape) is context


def test_one_place_is_taken_whole_whatever_asks():
    past = IntraAttention(DotScore(), hidden_size=D, query_uses_input=False)
    tape = written(past, 1)
    found = past(random(ROWS, E), random(ROWS, V), tape)
    torch.testing.assert_close(found, tape.values[:, 0])


def test_the_hidden_part_of_the_last_context_asks_and_all_of_a_place_is_taken():
    past = IntraAttention(DotScore(), hidden_size=D, query_uses_input=False)
    tape, context = written(past, 4), random(ROWS, V)
    weights = torch.einsum("bd,bsd->bs", context[:, :D], tape.values[..., :D]).softmax(dim=-1)
    wanted = torch.einsum("bs,bsv->bv", weights, tape.values)
    torch.testing.assert_close(past(random(ROWS, E), context, tape), wanted)


def test_keys_are_prepared_when_they_are_written_and_never_again():
    prepared = []

    class ProgressReporter(AdditiveScore):
        def prepare_keys(self, keys):
            prepared.append(keys.size(-2))
            return super().prepare_keys(keys)

    score = ProgressReporter(E + D, D, hidden_size=2).double()
    past = IntraAttention(score, hidden_size=D, query_uses_input=True)
    tape = written(past, 3)
    past(random(ROWS, E), random(ROWS, V), tape)
    assert prepared == [0, 1, 1, 1]
    torch.testing.assert_close(tape.keys, score.key_projection(tape.values[..., :D]))


def test_what_is_not_seen_has_no_influence():
    past = IntraAttention(DotScore(), hidden_size=D, query_uses_input=False)
    tape, context = written(past, 5), random(ROWS, V)
    seen = torch.tensor([True, True, False, False, True])
    some = tape._replace(mask=seen[None, :, None].expand(ROWS, -1, -1))
    without = StateHistory(*(part[:, seen] for part in tape))
    nothing = random(ROWS, E)
    torch.testing.assert_close(past(nothing, context, some), past(nothing, context, without))


def test_a_score_that_looks_back_is_refused():
    score = AdditiveScore(D, D, hidden_size=2, features=[CoverageFeature(2)])
    with pytest.raises(AssertionError, match="where earlier steps looked is not known"):
        IntraAttention(score, hidden_size=D, query_uses_input=False)
