"""Checkpoints: all that is needed to go on training as if nothing had happened.

A checkpoint is a folder that is replaced whole: weights, the optimizer's tensors and the state
of the random numbers as safetensors, the rest as JSON, and a manifest of hashes. No pickle.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor
from torch.optim import Optimizer

from heedful.data.prepare import Position
from heedful.storage import read_manifest, replacing, write_manifest
from heedful.training.engine import Learner
from heedful.weights import load_weights, write_weights

_WEIGHTS, _OPTIMIZER, _PROGRESS = "model.safetensors", "optimizer.safetensors", "progress.json"
_CPU_RANDOM, _CUDA_RANDOM = "random.cpu", "random.cuda"


@dataclass
class Progress:
    """How far training has come."""

    data: str  # fingerprint of the training data
    position: Position = field(default_factory=lambda: Position(0, 0))
    seconds: float = 0.0
    best_loss: float = float("inf")
    validations_since_best: int = 0
    ended: str = ""  # why training is over; nothing while it is not


def save_checkpoint(folder: Path, learner: Learner, progress: Progress) -> None:
    """Replace the checkpoint in a folder by where training stands now."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_weights(learner.model, temporary / _WEIGHTS)
        tensors = {**_optimizer_tensors(learner.optimizer), **_random_states()}
        (temporary / _OPTIMIZER).write_bytes(save(tensors))
        facts = json.dumps({"step": learner.step, **asdict(progress)}, indent=2)
        (temporary / _PROGRESS).write_text(facts + "\n", encoding="utf-8")
        write_manifest(temporary, list(temporary.iterdir()), {"step": learner.step})


def load_checkpoint(folder: Path, learner: Learner) -> Progress:
    """Put a learner where the checkpoint in a folder stands."""
    read_manifest(folder)
    load_weights(learner.model, folder / _WEIGHTS)
    tensors = load_file(folder / _OPTIMIZER)
    _restore_random(tensors)
    _restore_optimizer(learner.optimizer, tensors)
    learner.step, progress = read_progress(folder)
    return progress


def read_progress(folder: Path) -> tuple[int, Progress]:
    """How far the checkpoint in a folder has come: its step, and the rest."""
    facts = json.loads((folder / _PROGRESS).read_text(encoding="utf-8"))
    step, position = facts.pop("step"), Position(*facts.pop("position"))
    return step, Progress(position=position, **facts)


def _optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    states = optimizer.state_dict()["state"].items()
    return {
        f"{index}.{name}": tensor
        for index, state in states
        for name, tensor in state.items()
        if tensor is not None  # plain gradient descent has no momentum to keep
    }


def _restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        if index.isdigit():
            states.setdefault(int(index), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def _random_states() -> dict[str, Tensor]:
    states = {_CPU_RANDOM: torch.get_rng_state()}
    if torch.cuda.is_available():
        states[_CUDA_RANDOM] = torch.cuda.get_rng_state()
    return states


def _restore_random(tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors[_CPU_RANDOM])
    if _CUDA_RANDOM in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors[_CUDA_RANDOM])
