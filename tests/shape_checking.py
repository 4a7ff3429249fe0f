"""Shape checking: every call into a tensor package is held against its signature."""

from jaxtyping import install_import_hook

TENSOR_PACKAGES = ["attention", "layers", "encoders", "decoders", "search", "tasks"]


def check_shapes() -> None:
    """Check the tensor packages from here on; they must not have been imported before."""
    install_import_hook([f"heedful.{name}" for name in TENSOR_PACKAGES], "beartype.beartype")
