"""Shape checking: every call into a tensor package is held against its signature."""

from types import FunctionType
from typing import Any

from beartype import beartype
from beartype.roar import (
    BeartypeDecorHintPep3119Exception,
    BeartypeDecorHintPepUnsupportedException,
)
from jaxtyping import install_import_hook

BEYOND_BEARTYPE = (BeartypeDecorHintPepUnsupportedException, BeartypeDecorHintPep3119Exception)
TENSOR_PACKAGES = ["attention", "layers", "encoders", "decoders", "search", "tasks"]


def check_shapes() -> None:
    """Check the tensor packages from here on; they must not have been imported before."""
    install_import_hook([f"heedful.{name}" for name in TENSOR_PACKAGES], f"{__name__}.check")


def check(function: FunctionType) -> FunctionType:
    """Check the arguments and the outcome of a function on every call.

    Some types are beyond beartype: a generic named tuple such as `Step[State]`, and a protocol.
    Of a function that has one, everything else is checked.
    """
    try:
        return beartype(function)
    except BEYOND_BEARTYPE:
        hints = function.__annotations__
        return beartype(_with_hints(function, {n: hints[n] for n in hints if _reads(function, n)}))


def _reads(function: FunctionType, name: str) -> bool:
    try:
        beartype(_with_hints(function, {name: function.__annotations__[name]}))
    except BEYOND_BEARTYPE:
        return False
    return True


def _with_hints(function: FunctionType, hints: dict[str, Any]) -> FunctionType:
    code, names = function.__code__, function.__globals__
    copy = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    copy.__annotations__ = hints
    return copy
