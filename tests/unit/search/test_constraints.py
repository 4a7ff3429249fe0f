"""Constraints: always kept, nothing when there are none, and refused when they cannot be kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import Diversity, LengthPenalty, Must, Searching, greedy_search, must_say
from heedful.search.repetition import NoRepeats
from heedful.search.rules import BeginWith, NeverSay
from tests.unit.search.tables import BEGIN, END, Table, contains, search

LONGEST = 4


def either(phrases):
    return Must(tuple(tuple(phrase) for phrase in phrases))


phrases = st.lists(st.integers(2, 4), min_size=1, max_size=2)
must = st.lists(phrases, min_size=1, max_size=2).map(either)
musts = st.lists(must, max_size=2)
seeds = st.integers(0, 9999)


def is_met(tokens, musts):
    return all(any(contains(tokens, phrase) for phrase in must.phrases) for must in musts)


def told(found):
    return [[(each.tokens, pytest.approx(each.score)) for each in row] for row in found]


@given(
    seed=seeds,
    width=st.integers(1, 6),
    wanted=st.lists(musts, min_size=1, max_size=3),
    alpha=st.sampled_from([0.0, 0.6]),
)
def test_every_output_contains_what_it_must_in_any_company(seed, width, wanted, alpha):
    table = Table(seed, LONGEST, num_letters=3, sentences=len(wanted))
    options = {"width": width, "longest": LONGEST, "penalty": LengthPenalty(alpha)}
    found = search(table, sentences=len(wanted), how=Searching(musts=wanted), **options)
    for sentence, (hypotheses, musts) in enumerate(zip(found, wanted, strict=True)):
        assert hypotheses
        for each in hypotheses:
            assert is_met(each.tokens, musts)
            assert each.log_probs.tolist() == pytest.approx(table.of(each.tokens, sentence))
        assert len({tuple(each.tokens) for each in hypotheses}) == len(hypotheses)
        table_alone = Table(seed, LONGEST, num_letters=3, sentences=len(wanted))
        table_alone.log_probs = table_alone.log_probs[sentence : sentence + 1]
        alone = search(table_alone, how=Searching(musts=[musts]), **options)[0]
        assert [each.tokens for each in alone] == [each.tokens for each in hypotheses]


@given(seed=seeds, width=st.integers(1, 6), alpha=st.sampled_from([0.0, 0.6]))
def test_where_nothing_must_be_said_it_is_a_plain_beam(seed, width, alpha):
    table = Table(seed, LONGEST, num_letters=3, sentences=2)
    options = {"width": width, "longest": LONGEST, "sentences": 2}
    options["penalty"] = LengthPenalty(alpha)
    plain = search(table, **options)
    assert told(plain) == told(search(table, how=Searching(musts=[[], []]), **options))
    beside = search(table, how=Searching(musts=[[must_say([2, 3])], []]), **options)
    assert told(plain[1:]) == told(beside[1:])


def of(letters):
    """Something to say in these letters."""
    phrases = st.lists(st.sampled_from(letters), min_size=1, max_size=2)
    return st.lists(phrases, min_size=1, max_size=2).map(either)


@given(seed=seeds, musts=st.one_of(must.map(lambda each: [each]), st.tuples(of([2]), of([3, 4]))))
def test_a_beam_as_wide_as_the_space_finds_the_best_of_what_is_allowed(seed, musts):
    """Where what must be said does not overlap, how much is missing is exact."""
    table = Table(seed, LONGEST, num_letters=3)
    found = search(table, width=400, longest=LONGEST, how=Searching(musts=[musts]))[0]
    wanted = table.exhaust(LONGEST, keep=lambda tokens: is_met(tokens, musts))
    assert [each.tokens for each in found] == [tokens for _, tokens in wanted]


@given(seed=seeds, width=st.integers(1, 4), musts=musts)
def test_what_must_be_said_goes_before_what_may_not(seed, width, musts):
    table = Table(seed, LONGEST, num_letters=3)
    rules = (NeverSay([2, 3]), NoRepeats(1))
    found = search(table, width=width, longest=LONGEST, how=Searching(rules=rules, musts=[musts]))[
        0
    ]
    assert found
    assert all(is_met(each.tokens, musts) for each in found)
    required = {token for must in musts for phrase in must.phrases for token in phrase}
    assert all(token == 4 or token in required for each in found for token in each.tokens)


@given(
    seed=seeds, width=st.integers(1, 4), musts=musts, prefix=st.lists(st.integers(2, 4), max_size=2)
)
def test_a_prefix_and_constraints_are_both_kept(seed, width, musts, prefix):
    table = Table(seed, 6, num_letters=3)
    how = Searching(rules=(BeginWith([prefix]),), musts=[musts])
    found = search(table, width=width, longest=6, how=how)[0]
    assert found
    for each in found:
        assert each.tokens[: len(prefix)] == prefix
        assert is_met(each.tokens, musts)


@given(seed=seeds, musts=musts)
def test_groups_keep_constraints_too(seed, musts):
    table = Table(seed, LONGEST, num_letters=3)
    how = Searching(diversity=Diversity(3, 1.0), musts=[musts])
    found = search(table, width=6, longest=LONGEST, how=how)[0]
    assert found
    assert all(is_met(each.tokens, musts) for each in found)


@given(seed=seeds, musts=musts)
def test_greedy_search_keeps_them(seed, musts):
    table = Table(seed, LONGEST, num_letters=3)
    state, limits = table.start(), table.start()[0] + LONGEST
    options = {"begin": BEGIN, "end": END, "max_lengths": limits}
    (found,) = greedy_search(table, state, how=Searching(musts=[musts]), **options)
    assert is_met(found.tokens, musts)


def complaint(musts, longest=3, rules=()):
    with pytest.raises(ConfigError) as caught:
        search(
            Table(0, 3, sentences=2),
            width=2,
            longest=longest,
            sentences=2,
            how=Searching(musts=musts, rules=rules),
        )
    return str(caught.value)


def test_what_does_not_fit_is_refused():
    musts = [[], [must_say([2, 3], [2, 2, 2]), must_say([3, 3])]]
    assert complaint(musts) == (
        "constraints of sentence 2: they take 4 tokens, but the output may have 3\n"
        "  require less, or let outputs be longer"
    )
    assert complaint([[must_say([3, 3])], []], rules=(BeginWith([[2, 2], []]),)) == (
        "constraints of sentence 1: they take 4 tokens, its prefix of 2 counted, but the output "
        "may have 3\n  require less, or let outputs be longer"
    )


def test_a_phrase_of_nothing_is_refused():
    assert complaint([[must_say([2], [])], []]) == (
        "constraints of sentence 1: an empty phrase says nothing\n  leave it out"
    )


def test_the_end_cannot_be_required():
    assert complaint([[], [must_say([2, END])]]) == (
        "constraints of sentence 2: a phrase contains the end symbol\n"
        "  require only what comes before the end"
    )
