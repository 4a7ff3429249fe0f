"""Phrases: how far an output is with what it must say."""

from hypothesis import given
from hypothesis import strategies as st

from heedful.search.constraints import ConstraintSet, DisjunctiveConstraint
from tests.unit.search.tables import contains


def either(phrases):
    return DisjunctiveConstraint(tuple(tuple(phrase) for phrase in phrases))


phrases = st.lists(st.integers(0, 2), min_size=1, max_size=4)
constraints = st.lists(st.lists(phrases, min_size=1, max_size=3).map(either), max_size=3)
cases = given(musts=constraints, tokens=st.lists(st.integers(0, 2), max_size=10))


def progress_after(duties, tokens):
    progress = duties.start()
    for token in tokens:
        progress = duties.advance(progress, token)
    return progress


@cases
def test_nothing_is_missing_if_and_only_if_all_is_said(constraints, tokens):
    duties = ConstraintSet(constraints)
    said = [any(contains(tokens, phrase) for phrase in must.phrases) for must in constraints]
    assert (duties.num_missing(progress_after(duties, tokens)) == 0) == all(said)


@cases
def test_what_is_said_of_a_phrase_is_its_longest_beginning_at_the_end(constraints, tokens):
    duties = ConstraintSet(constraints)
    for must, said in zip(duties.constraints, progress_after(duties, tokens).matched, strict=True):
        if said is not None:
            for phrase, count in zip(must.phrases, said, strict=True):
                lengths = range(min(len(phrase) - 1, len(tokens)) + 1)
                ends = [n for n in lengths if tokens[len(tokens) - n :] == list(phrase[:n])]
                assert count == max(ends)


@cases
def test_as_many_tokens_as_are_missing_are_enough(constraints, tokens):
    """Some next token always leaves fewer missing, so that a search never gets stuck."""
    duties = ConstraintSet(constraints)
    progress = progress_after(duties, tokens)
    missing = duties.num_missing(progress)
    while missing:
        progress = min(
            (duties.advance(progress, token) for token in duties.next_tokens(progress)),
            key=duties.num_missing,
        )
        assert duties.num_missing(progress) < missing
        missing = duties.num_missing(progress)
