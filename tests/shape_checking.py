"""Check tensor shapes against the signatures of every call into a tensor package."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config, install_import_hook

TENSOR_PACKAGES = ["attention", "layers", "markov", "models", "search"]


def check_shapes() -> None:
    """Install the import hook; the tensor packages must not have been imported before."""
    install_import_hook([f"heedful.{name}" for name in TENSOR_PACKAGES], "beartype.beartype")


@contextmanager
def unchecked() -> Iterator[None]:
    """Disable the checks: a training loop makes a million calls."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
