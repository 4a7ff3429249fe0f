"""Checks the arguments of Python functions against their annotations.

The command line and recipes check what they are given; this does it for functions that are called
from Python. Invariant: a function gets the arguments that it was called with, not converted ones.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from reprlib import repr as short_repr
from typing import Any, ParamSpec, TypeVar, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from heedful.errors import ArgumentError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_STRICT = ConfigDict(arbitrary_types_allowed=True, strict=True)


def check_types(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function raise ArgumentError for an argument whose type its annotation excludes.

    The elements of an `Iterable` are not checked, as they may arrive one by one.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # too many or too few: Python says so
            return function(*args, **kwargs)
        hints = _adapters(function)
        for name, value in arguments.items():
            is_variadic = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            for part, item in value.items() if is_variadic else [(name, value)]:
                if name in hints:
                    _check(function.__name__, part, item, *hints[name])
        return function(*args, **kwargs)

    return call


@cache
def _adapters(function: Callable[..., Any]) -> Mapping[str, tuple[Any, TypeAdapter[Any]]]:
    hints = get_type_hints(function)
    return {name: (hint, TypeAdapter(hint, config=_STRICT)) for name, hint in hints.items()}


def _check(function: str, name: str, value: object, hint: Any, adapter: TypeAdapter[Any]) -> None:
    checked = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Iterator):  # validation might read it
        checked = iter(())
    try:
        adapter.validate_python(checked)
    except ValidationError:
        expected = _format_type(hint)
        message = f"must be {expected}, but is {short_repr(value)} ({type(value).__name__})"
        raise ArgumentError(name, message, f"`help` of `{function}` describes it") from None


def _format_type(hint: Any) -> str:
    """Return an annotation without the names of modules: "str | Path"."""
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
