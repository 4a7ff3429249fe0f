"""Arguments of Python functions are checked against annotations."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import pytest

from heedful.config import check_types
from heedful.errors import ArgumentError


@check_types
def describe(
    texts: str | tuple[str, str] | Iterable[str],
    *,
    count: int | None = None,
    rate: float = 1.0,
    names: Sequence[str] = (),
    unit: Literal["m", "s"] = "m",
    **files: str,
) -> object:
    return texts, count, rate, names, unit, files


def test_valid_arguments_passed_on_unchanged():
    count = np.int64(3)
    result = describe(["a"], count=count, rate=2, names=("b",), unit="s", path="c")
    assert result == (["a"], count, 2, ("b",), "s", {"path": "c"})
    assert result[1] is count


def test_iterators_are_not_read():
    texts = iter(["a", "b"])
    assert list(describe(texts)[0]) == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": "3"}, "count: must be int | None, but is '3' (str)"),
        ({"count": 3.0}, "count: must be int | None, but is 3.0 (float)"),
        ({"rate": "2"}, "rate: must be float, but is '2' (str)"),
        ({"names": "ab"}, "names: must be Sequence[str], but is 'ab' (str)"),
        ({"names": iter("ab")}, "names: must be Sequence[str], but is <str_"),
        ({"unit": "kg"}, "unit: must be Literal['m', 's'], but is 'kg' (str)"),
        ({"path": 5}, "path: must be str, but is 5 (int)"),
    ],
)
def test_wrong_type_names_argument_and_expectation(arguments, message):
    with pytest.raises(ArgumentError) as error:
        describe("a", **arguments)
    assert str(error.value).startswith(message)
    assert error.value.hint == "`help` of `describe` describes it"


def test_wrong_number_of_arguments_is_pythons_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        describe()
