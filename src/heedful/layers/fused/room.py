"""Room: how is a place added to those that are held, without copying them all?

Greedy search adds to the same rows, step after step. What is held is then part of something longer,
and the next place is written behind it. Law: what is given is what joining gives, and nobody who
still has what was held before sees any difference.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.shapes import Float

_SPARE = 16  # places
_PART_OF = "_is_part_of"


def add_behind(
    held: Float[Tensor, "B H S X"], added: Float[Tensor, "B H 1 X"]
) -> Float[Tensor, "B H S2 X"]:
    """Put a place behind those that are held.

    Whatever is given carries what it is a part of, until somebody adds to it. Rows that have moved
    come as another tensor: these are copied, and will be again. Only those that come back as they
    were given get room for more.
    """
    wide: Tensor | None = vars(held).pop(_PART_OF, None)
    size = held.size(-2)
    if wide is None:
        wide = torch.cat([held, added], dim=-2)
    else:
        if wide.size(-2) == size:
            wide = pad(wide, (0, 0, 0, _SPARE))
        wide[..., size : size + 1, :] = added
    grown = wide[..., : size + 1, :]
    vars(grown)[_PART_OF] = wide
    return grown
