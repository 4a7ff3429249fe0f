"""Shape checking: every call into a tensor package is held against its signature."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config, install_import_hook

TENSOR_PACKAGES = ["attention", "layers", "models", "search"]


def check_shapes() -> None:
    """Check the tensor packages from here on; they must not have been imported before."""
    install_import_hook([f"heedful.{name}" for name in TENSOR_PACKAGES], "beartype.beartype")


@contextmanager
def unchecked() -> Iterator[None]:
    """Check nothing for a while: a model that learns makes a million calls."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
