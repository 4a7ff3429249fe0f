"""Shapes: the letters that signatures speak in.

    *B  any leading dimensions        B  batch rows          N  words of a vocabulary
    T   target time (queries)         S  source time (keys)  H  heads
    Q   width of a query              K  width of a key      V  width of a value
    A   hidden width of a score       D  width of a state    E  width of an embedding

`Float[Tensor, "*B T Q"]` is checked on every call in tests, where jaxtyping is installed, and
costs nothing in use, where it need not be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item: object) -> type:
                return cls

        Bool = Float = Int = _Unchecked

__all__ = ["Bool", "Float", "Int"]
