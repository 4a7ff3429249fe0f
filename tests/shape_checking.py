"""Check tensor shapes against the signatures of every call into a tensor package.

Checks take as long as the calls, so they run where they find something: in the tests of each tensor
package, in the laws, and once for every system of the catalogue. A call with the types and shapes
of an earlier call of the same function is not checked again: it would pass again.
"""

import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from beartype import beartype
from jaxtyping import config, install_import_hook

TENSOR_PACKAGES = ["attention", "layers", "markov", "models", "search"]
CHECKED_TESTS = [
    *(f"unit/{name}" for name in TENSOR_PACKAGES),
    *("laws", "equivalence/test_steps.py", "equivalence/test_train_step.py"),
    "architecture/test_shape_checking.py",
]
_TESTS = Path(__file__).parent


def check_shapes() -> None:
    """Install the import hook; the tensor packages must not have been imported before."""
    packages = [f"heedful.{name}" for name in TENSOR_PACKAGES]
    install_import_hook(packages, f"{__name__}.check_new_shapes")


def check_new_shapes(function: Callable) -> Callable:
    """Return `function`, which jaxtyping calls to check annotations, with a memory of its calls."""
    checked_calls = set()
    checking_function = None  # beartype takes its time; most functions are never checked

    def check(*args: Any, **kwargs: Any) -> None:
        nonlocal checking_function
        call = hash((*map(_type_and_shape, args), *map(_type_and_shape, kwargs.items())))
        if call not in checked_calls:
            checking_function = checking_function or beartype(function)
            checking_function(*args, **kwargs)
            checked_calls.add(call)

    return check


def _type_and_shape(value: Any) -> Hashable:
    """Return all of a value that a check depends on."""
    kind = type(value)
    if isinstance(value, sys.modules["torch"].Tensor):
        return kind, value.dtype, value.shape
    if kind in (tuple, list):
        return kind, *map(_type_and_shape, value)
    if kind is dict:
        return kind, *map(_type_and_shape, value.items())
    return value if kind in (str, bool) else kind


@cache
def _is_checked(test_file: Path) -> bool:
    return any(test_file.is_relative_to(_TESTS / name) for name in CHECKED_TESTS)


def enable_checks_of(test_file: Path) -> None:
    """Enable the checks for the tests of this file, or disable them."""
    config.update("jaxtyping_disable", not _is_checked(test_file))


@contextmanager
def unchecked() -> Iterator[None]:
    """Disable the checks: a training loop makes a million calls."""
    was_disabled = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", was_disabled)
