"""Constraints: satisfied by every output, without effect if there are none, checked beforehand.

Exactness is tested against all outputs of a tiny vocabulary.
"""

from itertools import count, product

import pytest
from hypothesis import example, given
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
from heedful.search.constraints import ConstraintSet
from heedful.search.logits_processors import ForbiddenTokens, ForcedPrefix, NoRepeatNGram
from tests.unit.search.tables import BOS, EOS, TableModel, contains, search

MAX_LENGTH = 4


def one_of(phrases):
    return DisjunctiveConstraint(tuple(tuple(phrase) for phrase in phrases))


phrases_of_one_or_two = st.lists(st.integers(2, 4), min_size=1, max_size=2)
some_constraint = st.lists(phrases_of_one_or_two, min_size=1, max_size=2).map(one_of)
some_constraints = st.lists(some_constraint, max_size=2)
seeds = st.integers(0, 9999)


def satisfies(tokens, constraints):
    return all(
        any(contains(tokens, phrase) for phrase in constraint.phrases) for constraint in constraints
    )


def tokens_and_scores(outputs_of_sentences):
    return [
        [(output.tokens, pytest.approx(output.score)) for output in outputs]
        for outputs in outputs_of_sentences
    ]


@given(
    seed=seeds,
    beam_size=st.integers(1, 6),
    constraints=st.lists(some_constraints, min_size=1, max_size=3),
    alpha=st.sampled_from([0.0, 0.6]),
)
def test_outputs_satisfy_constraints_in_any_batch(seed, beam_size, constraints, alpha):
    def build_model():
        return TableModel(seed, MAX_LENGTH, num_letters=3, num_sentences=len(constraints))

    shared = {
        "beam_size": beam_size,
        "max_length": MAX_LENGTH,
        "length_penalty": LengthPenalty(alpha),
    }
    model, options = build_model(), BeamSearchOptions(constraints=constraints)
    batched = search(model, num_sentences=len(constraints), options=options, **shared)
    for sentence, (outputs, required) in enumerate(zip(batched, constraints, strict=True)):
        assert outputs
        for output in outputs:
            assert satisfies(output.tokens, required)
            expected = model.token_log_probs(output.tokens, sentence)
            assert output.log_probs.tolist() == pytest.approx(expected)
        assert len({tuple(output.tokens) for output in outputs}) == len(outputs)
        options = BeamSearchOptions(constraints=[required])
        alone = search(build_model().only(sentence), options=options, **shared)[0]
        assert [output.tokens for output in alone] == [output.tokens for output in outputs]


@given(seed=seeds, beam_size=st.integers(1, 6), alpha=st.sampled_from([0.0, 0.6]))
def test_empty_constraints_are_a_plain_beam(seed, beam_size, alpha):
    model = TableModel(seed, MAX_LENGTH, num_letters=3, num_sentences=2)
    shared = {"beam_size": beam_size, "max_length": MAX_LENGTH, "num_sentences": 2}
    shared["length_penalty"] = LengthPenalty(alpha)
    plain = search(model, **shared)
    empty = search(model, options=BeamSearchOptions(constraints=[[], []]), **shared)
    assert tokens_and_scores(plain) == tokens_and_scores(empty)
    options = BeamSearchOptions(constraints=[[require_phrase([2, 3])], []])
    assert tokens_and_scores(plain[1:]) == tokens_and_scores(
        search(model, options=options, **shared)[1:]
    )


def constraints_on(letters, max_phrase_length, max_alternatives=2):
    """Up to three constraints whose phrases contain or overlap one another."""
    phrase = st.lists(st.sampled_from(letters), min_size=1, max_size=max_phrase_length)
    constraint = st.lists(phrase, min_size=1, max_size=max_alternatives).map(one_of)
    return st.lists(constraint, min_size=1, max_size=3)


@given(
    seed=seeds,
    constraints=st.one_of(constraints_on([2, 3], 3), constraints_on([2, 3, 4], 2)),
    max_length=st.integers(1, MAX_LENGTH),
    prefix=st.lists(st.integers(2, 4), max_size=1),
)
@example(seed=0, constraints=[one_of([[3]]), one_of([[2, 3]])], max_length=2, prefix=[])
@example(seed=0, constraints=[one_of([[2, 3]]), one_of([[3, 2]])], max_length=3, prefix=[2])
def test_exhaustive_beam_finds_every_satisfying_output(seed, constraints, max_length, prefix):
    model = TableModel(seed, MAX_LENGTH, num_letters=3)
    processors = (ForcedPrefix([prefix]),) if prefix else ()
    options = BeamSearchOptions(constraints=[constraints], processors=processors)
    expected = model.ranked_outputs(
        max_length,
        keep=lambda tokens: tokens[: len(prefix)] == prefix and satisfies(tokens, constraints),
    )
    if not expected:
        with pytest.raises(ConfigError, match=f"but max_length is {max_length}"):
            search(model, beam_size=400, max_length=max_length, options=options)
        return
    outputs = search(model, beam_size=400, max_length=max_length, options=options)[0]
    assert [output.tokens for output in outputs] == [tokens for _, tokens in expected]


@given(seed=seeds, beam_size=st.integers(1, 4), constraints=some_constraints)
def test_required_phrases_override_forbidden_tokens(seed, beam_size, constraints):
    model = TableModel(seed, MAX_LENGTH, num_letters=3)
    options = BeamSearchOptions(
        processors=(ForbiddenTokens([2, 3]), NoRepeatNGram(1)), constraints=[constraints]
    )
    outputs = search(model, beam_size=beam_size, max_length=MAX_LENGTH, options=options)[0]
    assert outputs
    assert all(satisfies(output.tokens, constraints) for output in outputs)
    required = {
        token for constraint in constraints for phrase in constraint.phrases for token in phrase
    }
    assert all(token == 4 or token in required for output in outputs for token in output.tokens)


@given(seed=seeds, constraints=some_constraints)
def test_constraints_hold_with_beam_groups(seed, constraints):
    model = TableModel(seed, MAX_LENGTH, num_letters=3)
    options = BeamSearchOptions(diversity=BeamGroups(3, 1.0), constraints=[constraints])
    outputs = search(model, beam_size=6, max_length=MAX_LENGTH, options=options)[0]
    assert outputs
    assert all(satisfies(output.tokens, constraints) for output in outputs)


@given(seed=seeds, constraints=some_constraints)
def test_constraints_hold_in_greedy_search(seed, constraints):
    model = TableModel(seed, MAX_LENGTH, num_letters=3)
    state = model.initial_state()
    (output,) = greedy_search(
        model,
        state,
        bos=BOS,
        eos=EOS,
        max_lengths=state[0] + MAX_LENGTH,
        options=BeamSearchOptions(constraints=[constraints]),
    )
    assert satisfies(output.tokens, constraints)


@pytest.mark.parametrize(
    ("constraints", "prefixes", "message"),
    [
        (
            [[], [require_phrase([2, 3], [2, 2, 2]), require_phrase([4, 4])]],
            [[], []],
            "constraints of sentence 2: the constraints need 4 tokens, but max_length is 3\n"
            "  require fewer or shorter phrases, or raise max_length",
        ),
        (
            [[require_phrase([3, 3])], []],
            [[2, 2], []],
            "constraints of sentence 1: the constraints need 4 tokens, including the prefix of 2, "
            "but max_length is 3\n  require fewer or shorter phrases, or raise max_length",
        ),
        (
            [[require_phrase([2], [])], []],
            [[], []],
            "constraints of sentence 1: a phrase is empty\n  remove the empty phrase",
        ),
        (
            [[], [require_phrase([2, EOS])]],
            [[], []],
            "constraints of sentence 2: a phrase contains EOS\n  remove EOS from the phrase",
        ),
    ],
)
def test_constraints_that_no_output_can_satisfy_reported(constraints, prefixes, message):
    processors = (ForcedPrefix(prefixes),) if any(prefixes) else ()
    options = BeamSearchOptions(constraints=constraints, processors=processors)
    model = TableModel(0, 3, num_sentences=2)
    with pytest.raises(ConfigError) as caught:
        search(model, beam_size=2, max_length=3, num_sentences=2, options=options)
    assert str(caught.value) == message


phrases = st.lists(st.integers(0, 2), min_size=1, max_size=4)
progress_cases = given(
    constraints=st.lists(st.lists(phrases, min_size=1, max_size=3).map(one_of), max_size=3),
    tokens=st.lists(st.integers(0, 2), max_size=10),
)


def progress_after(constraint_set, tokens):
    progress = constraint_set.start()
    for token in tokens:
        progress = constraint_set.advance(progress, token)
    return progress


@progress_cases
def test_num_missing_is_zero_iff_all_constraints_satisfied(constraints, tokens):
    constraint_set = ConstraintSet(constraints)
    num_missing = constraint_set.num_missing(progress_after(constraint_set, tokens))
    assert (num_missing == 0) == satisfies(tokens, constraints)


@progress_cases
def test_matched_count_is_longest_prefix_that_ends_the_output(constraints, tokens):
    constraint_set = ConstraintSet(constraints)
    matched = progress_after(constraint_set, tokens)
    for constraint, counts in zip(constraint_set.constraints, matched, strict=True):
        if counts is not None:
            for phrase, count in zip(constraint.phrases, counts, strict=True):
                lengths = range(min(len(phrase) - 1, len(tokens)) + 1)
                borders = [
                    length
                    for length in lengths
                    if tokens[len(tokens) - length :] == list(phrase[:length])
                ]
                assert count == max(borders)


@given(
    constraints=st.one_of(constraints_on([0, 1], 3), constraints_on([0, 1, 2], 2, 3)),
    tokens=st.lists(st.integers(0, 2), max_size=4),
)
def test_num_missing_is_the_length_of_the_shortest_continuation(constraints, tokens):
    constraint_set = ConstraintSet(constraints)
    letters = {
        token for constraint in constraints for phrase in constraint.phrases for token in phrase
    }
    shortest = next(
        length
        for length in count()
        if any(
            satisfies([*tokens, *continuation], constraints)
            for continuation in product(letters, repeat=length)
        )
    )
    assert constraint_set.num_missing(progress_after(constraint_set, tokens)) == shortest


def assert_some_next_token_reduces_num_missing(constraint_set, progress):
    while missing := constraint_set.num_missing(progress):
        next_tokens = constraint_set.next_tokens(progress)
        progress = min(
            (constraint_set.advance(progress, token) for token in next_tokens),
            key=constraint_set.num_missing,
        )
        assert constraint_set.num_missing(progress) < missing


@progress_cases
def test_some_next_token_always_reduces_num_missing(constraints, tokens):
    """So a search with enough tokens left never gets stuck."""
    constraint_set = ConstraintSet(constraints)
    assert_some_next_token_reduces_num_missing(
        constraint_set, progress_after(constraint_set, tokens)
    )


@pytest.mark.wide
def test_many_overlapping_constraints_stay_satisfiable():
    """Too many for an exact count: never fewer tokens than are needed, and quickly counted."""
    constraint_set = ConstraintSet([require_phrase([i, i + 1, i + 2]) for i in range(14)])
    assert 16 <= constraint_set.num_missing(constraint_set.start()) <= 18
    assert_some_next_token_reduces_num_missing(constraint_set, constraint_set.start())
