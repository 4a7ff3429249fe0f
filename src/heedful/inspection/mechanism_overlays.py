"""What attention mechanisms know beside their weights, which figures draw on the map of a head.

An overlay is a field of `TraceRecord.extras`: whichever mechanism has one of `OVERLAY_FIELDS` shows
it, and none is named here. Invariant: an overlay has one value per query, or one per cell.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # at run time it would import torch, which pages do not need
    from torch import Tensor

OVERLAY_FIELDS = (
    "centers",  # of a local window, as a position
    "half_width",
    "coverage",  # of each position before the query
    "probabilities",  # that a hard alignment selected from
    "selected_position",  # -1 if none was
    "expected_position",  # of a monotonic pointer
)
Overlays = Mapping[str, NDArray[Any]]
_DIGITS = 6  # of numbers in JSON


def select_overlays(extras: Mapping[str, "Tensor"]) -> Iterator[tuple[str, "Tensor"]]:
    """Yield the overlays among the tensors of a trace of one text, (H, T) or (H, T, S)."""
    for name in OVERLAY_FIELDS:
        if name in extras:
            yield name, extras[name][0]


def overlays_to_json(
    overlays: Overlays, gates: Sequence[float] | None, copy_probs: Sequence[float] | None
) -> dict[str, Any]:
    """Return the overlays of a map: those of its head, and what each query uses and copies."""
    shares = {"gates": gates, "copy_probs": copy_probs}
    fields = {**overlays, **{name: value for name, value in shares.items() if value is not None}}
    return {
        name: np.asarray(values, np.float64).round(_DIGITS).tolist()
        for name, values in fields.items()
    }
