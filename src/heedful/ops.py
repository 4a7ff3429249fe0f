"""Named computations that may have faster kernels.

`@op` turns a plain function, its reference, into an `Op`. Calling it runs the first registered
kernel that supports the arguments, else the reference. `heedful.acceleration` registers kernels.
Invariant: each kernel of an op returns the same as the reference, up to rounding.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Kernel(NamedTuple, Generic[*Args, Result]):
    """A faster way to compute an op."""

    name: str
    run: Callable[[*Args], Result]
    supports: Callable[[*Args], bool]
    """Decides by types, devices, dtypes and shapes, never by values."""


class Op(Generic[*Args, Result]):
    """A function with kernels; the first that supports the arguments runs."""

    def __init__(self, reference: Callable[[*Args], Result]) -> None:
        self.reference = reference
        self.kernels: list[Kernel[*Args, Result]] = []
        update_wrapper(self, reference)
        OPS.append(self)

    def register(
        self, name: str, run: Callable[[*Args], Result], supports: Callable[[*Args], bool]
    ) -> None:
        """Add a kernel behind those that are registered."""
        self.kernels.append(Kernel(name, run, supports))

    def select_kernel(self, *args: *Args) -> Kernel[*Args, Result] | None:
        """Return the first kernel that supports the arguments."""
        for kernel in self.kernels:
            if kernel.supports(*args):
                return kernel
        return None

    def __call__(self, *args: *Args) -> Result:
        """Compute the op, with a kernel if one supports the arguments."""
        kernel = self.select_kernel(*args)
        return self.reference(*args) if kernel is None else kernel.run(*args)


OPS: list[Op[*tuple[Any, ...], Any]] = []
"""All ops, in the order of their definition."""


def op(reference: Callable[[*Args], Result]) -> Op[*Args, Result]:
    """Make a function an op; its arguments are then positional."""
    return Op(reference)
