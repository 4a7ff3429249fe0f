"""States of torch's random generators, which checkpoints and debug dumps contain."""

from collections.abc import Mapping
from types import ModuleType

import torch
from torch import Tensor


def get_rng_states() -> dict[str, Tensor]:
    """Return the states of torch's random generators: CPU, and the current GPU if there is one."""
    states = {name: module.get_rng_state() for name, module in _gpu_modules().items()}
    return {"cpu": torch.get_rng_state(), **states}


def set_rng_states(states: Mapping[str, Tensor]) -> None:
    """Restore states returned by `get_rng_states`."""
    torch.set_rng_state(states["cpu"])
    for name, module in _gpu_modules().items():
        if name in states:
            module.set_rng_state(states[name])


def _gpu_modules() -> dict[str, ModuleType]:
    modules = {"cuda": torch.cuda, "mps": torch.mps}
    return {name: module for name, module in modules.items() if module.is_available()}
