"""Check tensor shapes against the signatures of every call into a tensor package.

Checks take as long as the calls, so they run where they find something: in the tests of each tensor
package, in the laws, and once for every system of the catalogue. A call with the types and shapes
of an earlier call of the same function is not checked again: it would pass again.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from pathlib import Path
from types import CodeType
from typing import Any

import jaxtyping
from jaxtyping import config, jaxtyped

TENSOR_PACKAGES = ["attention", "layers", "markov", "models", "search"]
CHECKED_TESTS = [
    *(f"unit/{name}" for name in TENSOR_PACKAGES),
    *("laws", "equivalence/test_steps.py", "equivalence/test_train_step.py"),
    "architecture/test_shape_checking.py",
]
_TESTS = Path(__file__).parent
# Hashes of results by hashes of arguments, by function: inner functions are made many times.
_CHECKED_RESULTS: dict[CodeType, dict[int, set[int]]] = defaultdict(dict)


def check_shapes() -> None:
    """Install the import hook; the tensor packages must not have been imported before."""
    jaxtyping.jaxtyped = check_new_shapes  # the hook puts it before every function and class
    packages = [f"heedful.{name}" for name in TENSOR_PACKAGES]
    jaxtyping.install_import_hook(packages, "beartype.beartype")


def check_new_shapes(function: Callable | None = None, *, typechecker: Callable) -> Callable:
    """Return `function` with checks of the calls whose types and shapes are new."""
    if function is None:
        return partial(check_new_shapes, typechecker=typechecker)
    if isinstance(function, type):
        return jaxtyped(function, typechecker=typechecker)
    checked_results = _CHECKED_RESULTS[function.__code__]
    given_results = []
    add_checks = cache(partial(jaxtyped, typechecker=typechecker))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if config.jaxtyping_disable:
            return function(*args, **kwargs)
        shapes = hash((*map(_type_and_shape, args), *map(_type_and_shape, kwargs.items())))
        if shapes not in checked_results:
            result = add_checks(function)(*args, **kwargs)
            checked_results[shapes] = {hash(_type_and_shape(result))}
            return result
        result = function(*args, **kwargs)
        result_shapes = hash(_type_and_shape(result))
        if result_shapes not in checked_results[shapes]:
            given_results.append(result)
            add_checks(give_result)(*args, **kwargs)
            checked_results[shapes].add(result_shapes)
        return result

    @wraps(function)
    def give_result(*_args: Any, **_kwargs: Any) -> Any:
        return given_results.pop()

    return call


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
