"""Limits: when is training over?

A limit is a number that only grows and the most it may become. Training is over when the first of
them is reached, or when validations have long been no better.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from heedful.data.batch_stream import DataCursor
from heedful.errors import DiskFullError, HeedfulError
from heedful.storage import check_free_space, explain_os_errors, remove_path
from heedful.storage.state_dict import is_sharded, load_into_model, shard_like
from heedful.training.checkpoints import Snapshot
from heedful.training.config import TrainingConfig
from heedful.training.distributed import DistributedContext
from heedful.training.trainer import Trainer, get_rng_states, set_rng_states

# Parts: how are tensors kept of which each rank holds a part?
#
# Every rank writes its own parts into one folder, with torch's distributed checkpoint format (DCP):
# nothing is gathered, and any number of ranks can read them again. The format holds a pickle, which
# runs what it is told when it is read: only read a folder whose hashes were found good, and whose
# writer is trusted.


def save_sharded_tensors(
    tensors: Mapping[str, Tensor], folder: Path, dist_context: DistributedContext
) -> None:
    """Write this rank's parts; all ranks must do so, and all are told if one cannot."""
    # Slow to import, and few need it.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    _prepare_folder(folder, sum(each.nbytes for each in tensors.values()), dist_context)
    try:
        save(dict(tensors), storage_writer=FileSystemWriter(folder))
    except CheckpointException as failure:
        causes = [cause for cause, _ in failure.failures.values()]
        full = any(getattr(cause, "errno", 0) == errno.ENOSPC for cause in causes)
        with explain_os_errors(folder):
            raise OSError(errno.ENOSPC if full else errno.EIO, str(causes[0])) from failure


def load_sharded_tensors(folder: Path, reference_for: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """Read tensors, parted as the weights that `like` gives for their names, or whole as those."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    names = FileSystemReader(folder).read_metadata().state_dict_metadata
    found = {name: torch.empty_like(reference_for(name)) for name in names}
    is_alone = not any(map(is_sharded, found.values()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as is meant
        load(found, storage_reader=FileSystemReader(folder), no_dist=is_alone)
    return found


def _prepare_folder(folder: Path, size: int, dist_context: DistributedContext) -> None:
    problem: HeedfulError | None = None
    if dist_context.is_main_process:
        try:
            if folder.exists():  # of a checkpoint that could not be saved
                remove_path(folder)
            check_free_space(folder, size)
        except HeedfulError as error:
            problem = error
    (is_refused,) = dist_context.all_reduce_any(problem is not None)
    if is_refused:
        raise problem or DiskFullError(str(folder), "the first rank says why", "see its message")


# State: all that training needs to go on as if nothing had happened.
#
# Weights, the optimizer's tensors, averages and the random numbers of every rank as tensors; how far
# training has come as plain facts. No pickle, but in the `parts` of what is sharded.

_OPTIMIZER, _AVERAGE, _RANDOM = "optimizer.", "average.", "random."
_PRECISION = "precision"
_SHARDS = "parts"  # the folder of what each rank holds a part of


class ResourceUsage(NamedTuple):
    """How far training has come, in every unit that there may be a limit of."""

    step: int
    epochs: int  # whole ones
    minutes: float
    flops: float


@dataclass
class TrainingProgress:
    """How far training has come."""

    data_fingerprint: str  # fingerprint of the training data
    cursor: DataCursor = field(default_factory=lambda: DataCursor(0, 0))
    seconds: float = 0.0
    learning_rate: float = 0.0  # of the last step
    flops: float = 0.0  # floating-point ones, forwards and backwards
    scores: list[float] = field(default_factory=list)  # one per validation; smaller is better
    num_skipped_steps: int = 0  # steps from which nothing was learned
    num_consecutive_skips: int = 0
    stop_reason: str = ""  # why training is over; nothing while it is not

    def usage(self, step: int) -> ResourceUsage:
        """How far this is, in every unit that there may be a limit of."""
        return ResourceUsage(step, self.cursor.epoch, self.seconds / 60, self.flops)

    @property
    def best_score(self) -> float:
        """The best score so far."""
        return min(self.scores, default=float("inf"))

    @property
    def validations_since_best(self) -> int:
        """Validations since one was better than all before it."""
        return len(self.scores) - 1 - self.scores.index(self.best_score) if self.scores else 0


def take_snapshot(
    trainer: Trainer, progress: TrainingProgress, *, temporary_folder: Path
) -> Snapshot:
    """Take down where training stands; on several ranks, all must do so.

    What they hold parts of is written into a folder beside where checkpoints are.
    """
    ranks = trainer.dist_context
    tensors = _add_prefix(_OPTIMIZER, _optimizer_tensors(trainer.optimizer))
    if trainer.ema is not None:
        tensors |= _add_prefix(_AVERAGE, trainer.ema.state_dict())
    parted = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}
    folders = dict[str, Path]()
    if parted:
        folders[_SHARDS] = temporary_folder / f".writing-{_SHARDS}"  # swept, if we are killed
        save_sharded_tensors(parted, folders[_SHARDS], ranks)
    for number, states in enumerate(ranks.gather_to_main(get_rng_states())):
        tensors |= _add_prefix(f"{_RANDOM}{number}.", states)
    facts = {**asdict(progress), _PRECISION: trainer.precision.state_dict()}
    whole = {name: tensor for name, tensor in tensors.items() if name not in parted}
    return Snapshot(trainer.step, ranks.full_state_dict(trainer.model), whole, facts, folders)


def restore_snapshot(trainer: Trainer, snapshot: Snapshot, *, location: str) -> TrainingProgress:
    """Put a learner where a snapshot was taken, by any number of ranks; `at` names it in errors."""
    load_into_model(trainer.model, snapshot.model_state_dict, location=location)
    tensors = _reshard(trainer, snapshot)
    _restore_optimizer(trainer.optimizer, _strip_prefix(_OPTIMIZER, tensors))
    if trainer.ema is not None:
        trainer.ema.load_state_dict(_strip_prefix(_AVERAGE, tensors))
    # Ranks that were not there before go on with the random numbers of their own seed.
    if states := _strip_prefix(f"{_RANDOM}{trainer.dist_context.rank}.", tensors):
        set_rng_states(states)
    trainer.step = snapshot.step
    trainer.precision.load_state_dict(snapshot.metadata[_PRECISION])
    return read_progress(snapshot)


def read_progress(snapshot: Snapshot) -> TrainingProgress:
    """How far training had come when a snapshot was taken."""
    facts = {name: fact for name, fact in snapshot.metadata.items() if name != _PRECISION}
    return TrainingProgress(**{**facts, "cursor": DataCursor(*facts["cursor"])})


def _reshard(trainer: Trainer, snapshot: Snapshot) -> dict[str, Tensor]:
    """The tensors of a snapshot, each parted as its weight is now, if at all."""
    groups = trainer.optimizer.param_groups
    weights = [weight for group in groups for weight in group["params"]]
    averages = trainer.ema.state_dict() if trainer.ema is not None else {}

    def weight_of(name: str) -> Tensor:
        if name.startswith(_AVERAGE):
            return averages[name.removeprefix(_AVERAGE)]
        return weights[int(name.removeprefix(_OPTIMIZER).partition(".")[0])].detach()

    def part(name: str, tensor: Tensor) -> Tensor:
        if name.startswith(_RANDOM):
            return tensor
        weight = weight_of(name)
        return shard_like(tensor, weight) if tensor.shape == weight.shape else tensor

    found = {name: part(name, tensor) for name, tensor in snapshot.training_tensors.items()}
    folder = snapshot.extra_folders.get(_SHARDS)
    return found | (load_sharded_tensors(folder, weight_of) if folder else {})


def _add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
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


class TrainingLimits:
    """Every limit of a training."""

    def __init__(self, config: TrainingConfig) -> None:
        self._limits = {
            "steps": config.max_steps,
            "epochs": config.max_epochs,
            "minutes": config.max_minutes,
            "flops": config.max_flops,
        }
        self._patience = config.patience

    def reached_limit(self, usage: ResourceUsage) -> str:
        """Say which limit is reached; nothing if none is."""
        for unit, (most, now) in self._pairs(usage).items():
            if now >= most:
                return _LIMIT_MESSAGES[unit].format(most)
        return ""

    def early_stopping_reason(self, progress: TrainingProgress) -> str:
        """Say that validations have long been no better, or nothing."""
        waited = progress.validations_since_best
        hopeless = self._patience is not None and waited >= self._patience
        return f"early stopping: no improvement in {waited} validations" if hopeless else ""

    def fraction_done(self, usage: ResourceUsage) -> float:
        """How much of the way to the nearest limit lies behind: from 0 to 1."""
        return min(1.0, max(now / most for most, now in self._pairs(usage).values()))

    def _pairs(self, usage: ResourceUsage) -> dict[str, tuple[float, float]]:
        now = dict(zip(self._limits, usage, strict=True))
        return {unit: (most, now[unit]) for unit, most in self._limits.items() if most is not None}


_LIMIT_MESSAGES = {
    "steps": "reached max_steps={}",
    "epochs": "reached max_epochs={}",
    "minutes": "reached max_minutes={:g}",
    "flops": "reached max_flops={:g}",
}
