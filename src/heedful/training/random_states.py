"""Random states: where the generators that dropout and sampling draw from stand."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def random_states() -> dict[str, Tensor]:
    """Take down where the generators stand, that of the CPU and that of the GPU in use."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: Mapping[str, Tensor]) -> None:
    """Put the generators where they stood."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
