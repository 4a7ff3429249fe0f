"""Repetition: what is not said again, and what is said again at a price."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import BeamSearchOptions
from heedful.search.logits_processors import NoRepeatNGram, RepetitionPenalty
from tests.unit.search.tables import Table, search


def has_repeats(tokens, size):
    runs = [tuple(tokens[first : first + size]) for first in range(len(tokens) - size + 1)]
    return len(set(runs)) < len(runs)


@given(seed=st.integers(0, 999), size=st.integers(1, 3))
def test_every_output_without_repeats_and_no_other_is_found(seed, size):
    table = Table(seed, 4)
    found = search(
        table, width=40, longest=4, options=BeamSearchOptions(processors=(NoRepeatNGram(size),))
    )[0]
    wanted = table.exhaust(4, keep=lambda tokens: not has_repeats(tokens, size))
    assert [each.tokens for each in found] == [tokens for _, tokens in wanted]


@given(seed=st.integers(0, 999), penalty=st.sampled_from([1.0, 1.2, 3.0]))
def test_tokens_said_again_cost_more_in_the_ranking_and_not_in_the_evidence(seed, penalty):
    table = Table(seed, 3)
    rules = (RepetitionPenalty(penalty),)
    found = search(table, width=30, longest=3, options=BeamSearchOptions(processors=rules))[0]

    def worth(tokens):
        parts = enumerate(table.of(tokens))
        said = [*tokens, None]
        return sum(part * (penalty if said[time] in tokens[:time] else 1) for time, part in parts)

    best = sorted(table.outputs(3), key=worth, reverse=True)
    assert [each.tokens for each in found] == best
    assert [each.score for each in found] == pytest.approx([worth(tokens) for tokens in best])
    for each in found:
        assert each.log_probs.tolist() == pytest.approx(table.of(each.tokens))
