"""Errors: where, what is wrong, what to do."""

import pytest

from heedful import errors
from heedful.errors import ConfigError, CorruptRunError, HeedfulError, choices_hint, did_you_mean

KINDS = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_says_where_what_and_the_remedy(kind):
    error = kind("recipe.yaml:3", "a key stands twice", "remove one")
    assert str(error) == "recipe.yaml:3: a key stands twice\n  remove one"
    assert (error.location, error.message, error.hint) == (
        "recipe.yaml:3",
        "a key stands twice",
        "remove one",
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_caught_as_one_of_heedful(kind):
    assert issubclass(kind, HeedfulError)


def test_what_a_user_can_mend_exits_with_2_and_what_is_lost_with_1():
    assert ConfigError.exit_code == 2
    assert CorruptRunError.exit_code == 1


def test_the_nearest_allowed_word_is_named():
    assert did_you_mean("aditive", ["dot", "additive"]) == "; did you mean 'additive'?"


def test_no_word_is_named_when_none_is_near():
    assert did_you_mean("quadratic", ["dot", "additive"]) == ""


def test_the_allowed_words_are_listed_in_order():
    assert choices_hint(["dot", "additive"]) == "choose from: additive, dot"


def test_allowed_words_may_be_any_iterable():
    assert did_you_mean("dto", (word for word in ["dot"])) == "; did you mean 'dot'?"
    assert choices_hint(word for word in ["dot"]) == "choose from: dot"
