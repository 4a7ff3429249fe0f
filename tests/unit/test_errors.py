"""Errors: where, what is wrong, what to do."""

import pickle

import pytest

from heedful import errors
from heedful.errors import (
    ConfigError,
    CorruptRunError,
    HeedfulError,
    RunError,
    choices_hint,
    did_you_mean,
    format_count,
)

KINDS = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_text_has_location_message_and_hint(kind):
    error = kind("recipe.yaml:3", "duplicate key 'a'", "remove one")
    assert str(error) == "recipe.yaml:3: duplicate key 'a'\n  remove one"
    assert (error.location, error.message, error.hint) == (
        "recipe.yaml:3",
        "duplicate key 'a'",
        "remove one",
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_derive_from_heedful_error(kind):
    assert issubclass(kind, HeedfulError)


def test_exit_codes():
    assert ConfigError.exit_code == 2
    assert CorruptRunError.exit_code == 1


def test_did_you_mean_suggests_nearest():
    assert did_you_mean("aditive", ["dot", "additive"]) == "; did you mean 'additive'?"


def test_did_you_mean_is_empty_without_near_match():
    assert did_you_mean("quadratic", ["dot", "additive"]) == ""


def test_choices_hint_is_sorted():
    assert choices_hint(["dot", "additive"]) == "choose from: additive, dot"


def test_allowed_names_may_be_any_iterable():
    assert did_you_mean("dto", (word for word in ["dot"])) == "; did you mean 'dot'?"
    assert choices_hint(word for word in ["dot"]) == "choose from: dot"


def test_one_thing_is_counted_in_the_singular():
    assert [format_count(count, "image") for count in (0, 1, 1200)] == [
        "0 images",
        "1 image",
        "1,200 images",
    ]


def test_errors_reach_another_process():
    error = RunError("runs/a", "is empty", "train it again")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.hint) == (RunError, str(error), "train it again")
