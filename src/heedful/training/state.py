"""State: all that training needs to go on as if nothing had happened.

Weights, the optimizer's tensors, averages and the random numbers of every rank as tensors; how far
training has come as plain facts. No pickle, but in the `parts` of what is sharded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from torch.optim import Optimizer

from heedful.data.prepare import Position
from heedful.training.checkpoints import Snapshot
from heedful.training.engine import Learner
from heedful.training.parts import read_parts, write_parts
from heedful.training.random_states import random_states, restore_random
from heedful.weights import is_parted, part_like, put_weights

_OPTIMIZER, _AVERAGE, _RANDOM = "optimizer.", "average.", "random."
_PRECISION = "precision"
_PARTS = "parts"  # the folder of what each rank holds a part of


class Reached(NamedTuple):
    """How far training has come, in every unit that there may be a limit of."""

    step: int
    epochs: int  # whole ones
    minutes: float
    operations: float


@dataclass
class Progress:
    """How far training has come."""

    data: str  # fingerprint of the training data
    position: Position = field(default_factory=lambda: Position(0, 0))
    seconds: float = 0.0
    learning_rate: float = 0.0  # of the last step
    operations: float = 0.0  # floating-point ones, forwards and backwards
    scores: list[float] = field(default_factory=list)  # one per validation; smaller is better
    skipped: int = 0  # steps from which nothing was learned
    skipped_in_a_row: int = 0
    ended: str = ""  # why training is over; nothing while it is not

    def reached(self, step: int) -> Reached:
        """How far this is, in every unit that there may be a limit of."""
        return Reached(step, self.position.epoch, self.seconds / 60, self.operations)

    @property
    def best_score(self) -> float:
        """The best score so far."""
        return min(self.scores, default=float("inf"))

    @property
    def validations_since_best(self) -> int:
        """Validations since one was better than all before it."""
        return len(self.scores) - 1 - self.scores.index(self.best_score) if self.scores else 0


def take_snapshot(learner: Learner, progress: Progress, *, beside: Path) -> Snapshot:
    """Take down where training stands; on several ranks, all must do so.

    What they hold parts of is written into a folder beside where checkpoints are.
    """
    ranks = learner.ranks
    tensors = _under(_OPTIMIZER, _optimizer_tensors(learner.optimizer))
    if learner.average is not None:
        tensors |= _under(_AVERAGE, learner.average.weights())
    parted = {name: tensor for name, tensor in tensors.items() if is_parted(tensor)}
    folders = dict[str, Path]()
    if parted:
        folders[_PARTS] = beside / f".writing-{_PARTS}"  # swept, if we are killed
        write_parts(parted, folders[_PARTS], ranks)
    for number, states in enumerate(ranks.gather(random_states())):
        tensors |= _under(f"{_RANDOM}{number}.", states)
    facts = {**asdict(progress), _PRECISION: learner.precision.facts()}
    whole = {name: tensor for name, tensor in tensors.items() if name not in parted}
    return Snapshot(learner.step, ranks.weights(learner.model), whole, facts, folders)


def restore(learner: Learner, snapshot: Snapshot, *, at: str) -> Progress:
    """Put a learner where a snapshot was taken, by any number of ranks; `at` names it in errors."""
    put_weights(learner.model, snapshot.weights, at=at)
    tensors = _parted_again(learner, snapshot)
    _restore_optimizer(learner.optimizer, _below(_OPTIMIZER, tensors))
    if learner.average is not None:
        learner.average.restore(_below(_AVERAGE, tensors))
    # Ranks that were not there before go on with the random numbers of their own seed.
    if states := _below(f"{_RANDOM}{learner.ranks.rank}.", tensors):
        restore_random(states)
    learner.step = snapshot.step
    learner.precision.restore(snapshot.facts[_PRECISION])
    return progress_of(snapshot)


def progress_of(snapshot: Snapshot) -> Progress:
    """How far training had come when a snapshot was taken."""
    facts = {name: fact for name, fact in snapshot.facts.items() if name != _PRECISION}
    return Progress(**{**facts, "position": Position(*facts["position"])})


def _parted_again(learner: Learner, snapshot: Snapshot) -> dict[str, Tensor]:
    """The tensors of a snapshot, each parted as its weight is now, if at all."""
    groups = learner.optimizer.param_groups
    weights = [weight for group in groups for weight in group["params"]]
    averages = learner.average.weights() if learner.average is not None else {}

    def weight_of(name: str) -> Tensor:
        if name.startswith(_AVERAGE):
            return averages[name.removeprefix(_AVERAGE)]
        return weights[int(name.removeprefix(_OPTIMIZER).partition(".")[0])].detach()

    def part(name: str, tensor: Tensor) -> Tensor:
        if name.startswith(_RANDOM):
            return tensor
        weight = weight_of(name)
        return part_like(tensor, weight) if tensor.shape == weight.shape else tensor

    found = {name: part(name, tensor) for name, tensor in snapshot.tensors.items()}
    folder = snapshot.folders.get(_PARTS)
    return found | (read_parts(folder, weight_of) if folder else {})


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    states = optimizer.state_dict()["state"].items()
    return {
        f"{index}.{name}": tensor
        for index, state in states
        for name, tensor in state.items()
        if tensor is not None  # plain gradient descent has no momentum to keep
    }


def _restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        states.setdefault(int(index), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
