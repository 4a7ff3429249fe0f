"""Room: how are places added to those that are held, without copying them all?

Search adds to the same rows, step after step. What is held is then part of something longer, and
the next places are written behind it. Law: what is given is what joining gives, and nobody who
still has what was held before sees any difference.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.shapes import Float

_SPARE = 16  # times as many places as are added
_PART_OF = "_is_part_of"


def add_behind(
    held: Float[Tensor, "B H S X"], added: Float[Tensor, "B H N X"]
) -> Float[Tensor, "B H S+N X"]:
    """Put places behind those that are held.

    Whatever is given carries what it is a part of, until somebody adds to it. Rows that have moved
    come as another tensor: these are copied, and will be again. Only those that come back as they
    were given get room for more.
    """
    wide: Tensor | None = vars(held).pop(_PART_OF, None)
    size, new_size = held.size(-2), held.size(-2) + added.size(-2)
    if wide is None:
        wide = torch.cat([held, added], dim=-2)
    else:
        if wide.size(-2) < new_size:
            wide = pad(held, (0, 0, 0, max(_SPARE * added.size(-2), size // 2)))
        wide[..., size:new_size, :] = added
    grown = wide[..., :new_size, :]
    vars(grown)[_PART_OF] = wide
    return grown
