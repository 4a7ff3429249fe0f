"""Check tensor shapes against the signatures of every call into a tensor package.

Checks take as long as the calls, so they run where they find something: in the tests of each tensor
package, in the laws, and once for every system of the catalogue.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

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
    install_import_hook([f"heedful.{name}" for name in TENSOR_PACKAGES], "beartype.beartype")


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
