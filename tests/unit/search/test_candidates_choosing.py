"""Choosing: groups that avoid one another, against the paper's loop."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import BeamGroups, BeamSearchOptions
from heedful.search.logits_processors import MinLength
from tests.unit.search.tables import END, Never, Table, search

LONGEST = 3
seeds = st.integers(0, 9999)


def by_hand(table, groups, share, penalty):
    """Diverse beam search, group by group and candidate by candidate, to the longest length.

    Vijayakumar et al. 2018, algorithm 1; hypotheses that end in the best few are put aside.
    """
    beams = [[(0.0, [])] for _ in range(groups)]
    ended = [[] for _ in range(groups)]
    for depth in range(LONGEST + 1):
        chosen = Counter()
        for group in range(groups):
            grown = [
                (total + float(said[token]), [*tokens, token])
                for total, tokens in beams[group]
                for said in [table.log_probs[0, table.numbers[tuple(tokens)]]]
                for token in ([END] if depth == LONGEST else [END, *table.letters])
            ]
            grown.sort(key=lambda each: penalty * chosen[each[1][-1]] - each[0])
            ends = [each for each in grown[:share] if each[1][-1] == END]
            beams[group] = [each for each in grown if each[1][-1] != END][:share]
            ended[group] += ends
            chosen.update(each[1][-1] for each in ends + beams[group])
    best = [sorted(each, reverse=True)[:share] for each in ended]
    distinct = {tuple(tokens[:-1]): total for group in best for total, tokens in group}
    return sorted([(total, list(tokens)) for tokens, total in distinct.items()], reverse=True)


@given(
    seed=seeds,
    groups=st.integers(1, 3),
    share=st.integers(1, 3),
    strength=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_groups_choose_as_in_the_paper(seed, groups, share, penalty):
    table = Table(seed, LONGEST + 1, num_letters=3)
    how = BeamSearchOptions(diversity=BeamGroups(groups, penalty), stopping=Never())
    found = search(table, width=groups * share, longest=LONGEST, options=how)[0]
    wanted = by_hand(table, groups, share, penalty)
    assert [each.tokens for each in found] == [tokens for _, tokens in wanted]
    assert [each.score for each in found] == pytest.approx([total for total, _ in wanted])


@given(seed=seeds, width=st.integers(1, 5), strength=st.floats(0, 9))
def test_one_group_is_a_plain_beam(seed, width, penalty):
    table = Table(seed, LONGEST, num_letters=3, sentences=2)
    options = {"width": width, "longest": [LONGEST, 2], "sentences": 2}
    groups = search(table, options=BeamSearchOptions(diversity=BeamGroups(1, penalty)), **options)
    plain = search(table, **options)
    for one, other in zip(groups, plain, strict=True):
        assert [each[:3] for each in one] == [each[:3] for each in other]


@given(seed=seeds)
def test_groups_that_avoid_one_another_at_any_price_begin_differently(seed):
    table = Table(seed, LONGEST, num_letters=3)
    rules = (MinLength(torch.tensor([1]), eos=END),)
    how = BeamSearchOptions(diversity=BeamGroups(3, 1e6), processors=rules)
    found = search(table, width=3, longest=LONGEST, options=how)[0]
    assert {each.tokens[0] for each in found} == set(table.letters)


@given(seed=seeds)
def test_a_sentence_finds_the_same_alone_and_in_company(seed):
    table = Table(seed, LONGEST, num_letters=3, sentences=3)
    options = {"width": 4, "options": BeamSearchOptions(diversity=BeamGroups(2, 0.8))}
    together = search(table, longest=[1, 3, 2], sentences=3, **options)
    for sentence, longest in enumerate([1, 3, 2]):
        alone = Table(seed, LONGEST, num_letters=3, sentences=3)
        alone.log_probs = alone.log_probs[sentence : sentence + 1]
        found = search(alone, longest=longest, **options)[0]
        assert [each.tokens for each in found] == [each.tokens for each in together[sentence]]


def test_groups_that_cannot_share_are_refused():
    with pytest.raises(ConfigError) as caught:
        search(Table(0, 2), width=5, longest=2, options=BeamSearchOptions(diversity=BeamGroups(2)))
    assert str(caught.value) == (
        "diversity.num_beam_groups: a beam of 5 cannot be shared by 2 groups\n"
        "  choose a number of groups that divides the width"
    )
