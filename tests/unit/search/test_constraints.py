"""Constraints: always kept, nothing when there are none, and refused when they cannot be kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import (
    BeamGroups,
    BeamSearchOptions,
    DisjunctiveConstraint,
    LengthPenalty,
    greedy_search,
    require_phrase,
)
from heedful.search.logits_processors import ForbiddenTokens, ForcedPrefix, NoRepeatNGram
from tests.unit.search.tables import BEGIN, END, Table, contains, search

LONGEST = 4


def either(phrases):
    return DisjunctiveConstraint(tuple(tuple(phrase) for phrase in phrases))


phrases = st.lists(st.integers(2, 4), min_size=1, max_size=2)
must = st.lists(phrases, min_size=1, max_size=2).map(either)
constraints = st.lists(must, max_size=2)
seeds = st.integers(0, 9999)


def is_met(tokens, constraints):
    return all(any(contains(tokens, phrase) for phrase in must.phrases) for must in constraints)


def told(found):
    return [[(each.tokens, pytest.approx(each.score)) for each in row] for row in found]


@given(
    seed=seeds,
    width=st.integers(1, 6),
    wanted=st.lists(constraints, min_size=1, max_size=3),
    alpha=st.sampled_from([0.0, 0.6]),
)
def test_every_output_contains_what_it_must_in_any_company(seed, width, wanted, alpha):
    table = Table(seed, LONGEST, num_letters=3, sentences=len(wanted))
    options = {"width": width, "longest": LONGEST, "length_penalty": LengthPenalty(alpha)}
    found = search(
        table, sentences=len(wanted), options=BeamSearchOptions(constraints=wanted), **options
    )
    for sentence, (hypotheses, constraints) in enumerate(zip(found, wanted, strict=True)):
        assert hypotheses
        for each in hypotheses:
            assert is_met(each.tokens, constraints)
            assert each.log_probs.tolist() == pytest.approx(table.of(each.tokens, sentence))
        assert len({tuple(each.tokens) for each in hypotheses}) == len(hypotheses)
        table_alone = Table(seed, LONGEST, num_letters=3, sentences=len(wanted))
        table_alone.log_probs = table_alone.log_probs[sentence : sentence + 1]
        alone = search(
            table_alone, options=BeamSearchOptions(constraints=[constraints]), **options
        )[0]
        assert [each.tokens for each in alone] == [each.tokens for each in hypotheses]


@given(seed=seeds, width=st.integers(1, 6), alpha=st.sampled_from([0.0, 0.6]))
def test_where_nothing_must_be_said_it_is_a_plain_beam(seed, width, alpha):
    table = Table(seed, LONGEST, num_letters=3, sentences=2)
    options = {"width": width, "longest": LONGEST, "sentences": 2}
    options["penalty"] = LengthPenalty(alpha)
    plain = search(table, **options)
    assert told(plain) == told(
        search(table, options=BeamSearchOptions(constraints=[[], []]), **options)
    )
    beside = search(
        table, options=BeamSearchOptions(constraints=[[require_phrase([2, 3])], []]), **options
    )
    assert told(plain[1:]) == told(beside[1:])


def of(letters):
    """Something to say in these letters."""
    phrases = st.lists(st.sampled_from(letters), min_size=1, max_size=2)
    return st.lists(phrases, min_size=1, max_size=2).map(either)


@given(seed=seeds, musts=st.one_of(must.map(lambda each: [each]), st.tuples(of([2]), of([3, 4]))))
def test_a_beam_as_wide_as_the_space_finds_the_best_of_what_is_allowed(seed, constraints):
    """Where what must be said does not overlap, how much is missing is exact."""
    table = Table(seed, LONGEST, num_letters=3)
    found = search(
        table, width=400, longest=LONGEST, options=BeamSearchOptions(constraints=[constraints])
    )[0]
    wanted = table.exhaust(LONGEST, keep=lambda tokens: is_met(tokens, constraints))
    assert [each.tokens for each in found] == [tokens for _, tokens in wanted]


@given(seed=seeds, width=st.integers(1, 4), musts=constraints)
def test_what_must_be_said_goes_before_what_may_not(seed, width, constraints):
    table = Table(seed, LONGEST, num_letters=3)
    rules = (ForbiddenTokens([2, 3]), NoRepeatNGram(1))
    found = search(
        table,
        width=width,
        longest=LONGEST,
        options=BeamSearchOptions(processors=rules, constraints=[constraints]),
    )[0]
    assert found
    assert all(is_met(each.tokens, constraints) for each in found)
    required = {token for must in constraints for phrase in must.phrases for token in phrase}
    assert all(token == 4 or token in required for each in found for token in each.tokens)


@given(
    seed=seeds,
    width=st.integers(1, 4),
    musts=constraints,
    prefix=st.lists(st.integers(2, 4), max_size=2),
)
def test_a_prefix_and_constraints_are_both_kept(seed, width, constraints, prefix):
    table = Table(seed, 6, num_letters=3)
    how = BeamSearchOptions(processors=(ForcedPrefix([prefix]),), constraints=[constraints])
    found = search(table, width=width, longest=6, options=how)[0]
    assert found
    for each in found:
        assert each.tokens[: len(prefix)] == prefix
        assert is_met(each.tokens, constraints)


@given(seed=seeds, musts=constraints)
def test_groups_keep_constraints_too(seed, constraints):
    table = Table(seed, LONGEST, num_letters=3)
    how = BeamSearchOptions(diversity=BeamGroups(3, 1.0), constraints=[constraints])
    found = search(table, width=6, longest=LONGEST, options=how)[0]
    assert found
    assert all(is_met(each.tokens, constraints) for each in found)


@given(seed=seeds, musts=constraints)
def test_greedy_search_keeps_them(seed, constraints):
    table = Table(seed, LONGEST, num_letters=3)
    state, limits = table.start(), table.start()[0] + LONGEST
    options = {"bos": BEGIN, "eos": END, "max_lengths": limits}
    (found,) = greedy_search(
        table, state, options=BeamSearchOptions(constraints=[constraints]), **options
    )
    assert is_met(found.tokens, constraints)


def complaint(constraints, longest=3, rules=()):
    with pytest.raises(ConfigError) as caught:
        search(
            Table(0, 3, sentences=2),
            width=2,
            longest=longest,
            sentences=2,
            options=BeamSearchOptions(constraints=constraints, processors=rules),
        )
    return str(caught.value)


def test_what_does_not_fit_is_refused():
    constraints = [[], [require_phrase([2, 3], [2, 2, 2]), require_phrase([3, 3])]]
    assert complaint(constraints) == (
        "constraints of sentence 2: they take 4 tokens, but the output may have 3\n"
        "  require less, or let outputs be longer"
    )
    assert complaint([[require_phrase([3, 3])], []], rules=(ForcedPrefix([[2, 2], []]),)) == (
        "constraints of sentence 1: they take 4 tokens, its prefix of 2 counted, but the output "
        "may have 3\n  require less, or let outputs be longer"
    )


def test_a_phrase_of_nothing_is_refused():
    assert complaint([[require_phrase([2], [])], []]) == (
        "constraints of sentence 1: an empty phrase says nothing\n  leave it out"
    )


def test_the_end_cannot_be_required():
    assert complaint([[], [require_phrase([2, END])]]) == (
        "constraints of sentence 2: a phrase contains the end symbol\n"
        "  require only what comes before the end"
    )
