"""Training state: progress, its limits, and the contents of a checkpoint except the model.

Optimizer, moving average and random states as tensors, the progress as JSON: no pickle. Sharded
tensors are written by torch.distributed.checkpoint, a file per rank, for any number of ranks. Its
metadata is a pickle: load only folders whose hashes were verified and whose writer is trusted.
"""

import errno
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from heedful.data.shuffling import DataCursor
from heedful.errors import DiskFullError, HeedfulError, RunError, check
from heedful.storage.atomic import check_free_space, explain_os_errors, remove_path
from heedful.storage.state_dict import is_sharded, load_into_model
from heedful.training.checkpoints import Snapshot
from heedful.training.config import TrainingConfig
from heedful.training.distributed import DistributedContext, get_rng_states, set_rng_states
from heedful.training.trainer import Trainer

_OPTIMIZER, _EMA, _RNG = "optimizer.", "ema.", "rng."  # prefixes of tensor names
_PRECISION = "precision"
_SHARDS = "shards"  # the folder of sharded tensors


class ResumableBatches(Protocol):
    """Batches and the position after the last one that was taken."""

    cursor: DataCursor

    def __iter__(self) -> Iterator[Any]: ...


@dataclass
class TrainingProgress:
    """How far training has come; saved as progress.json."""

    data_fingerprint: str
    cursor: DataCursor = field(default_factory=lambda: DataCursor(0, 0))
    seconds: float = 0.0
    learning_rate: float = 0.0  # of the last step
    flops: float = 0.0  # forward and backward
    scores: list[float] = field(default_factory=list)  # one per validation; lower is better
    has_early_validation: bool = False  # which has no score here: its step depends on the clock
    num_skipped_steps: int = 0
    num_consecutive_skips: int = 0
    stop_reason: str = ""  # empty while training runs

    @property
    def best_score(self) -> float:
        """The lowest score so far."""
        return min(self.scores, default=float("inf"))

    @property
    def validations_since_best(self) -> int:
        """The number of validations after the best one."""
        return len(self.scores) - 1 - self.scores.index(self.best_score) if self.scores else 0


class TrainingResult(NamedTuple):
    """How training ended."""

    step: int
    stop_reason: str  # empty if it was interrupted
    best_score: float  # of the metric for the best model; lower is better
    seconds: float

    @classmethod
    def from_progress(cls, step: int, progress: TrainingProgress) -> Self:
        """Return the result of a training that has reached `step`."""
        return cls(step, progress.stop_reason, progress.best_score, progress.seconds)


class TrainingLimits:
    """When training stops: limits on steps, epochs, time and FLOPs, a target, early stopping."""

    def __init__(self, config: TrainingConfig, *, higher_is_better: bool = False) -> None:
        """`higher_is_better` says so of `metric_for_best_model`."""
        self._config = config
        self._sign = -1 if higher_is_better else 1

    def reached(self, step: int, progress: TrainingProgress) -> str:
        """Return the first limit that is reached, as text; empty if none is."""
        for name, (value, limit) in self._limits(step, progress).items():
            if value >= limit:
                return f"reached {name}={limit if isinstance(limit, int) else f'{limit:g}'}"
        return ""

    def early_stopping_reason(self, progress: TrainingProgress) -> str:
        """Return why training stops early, as text; empty if it does not."""
        target = self._config.target_score
        if target is not None and progress.best_score <= self._sign * target:
            score = f"{self._config.metric_for_best_model} {self._sign * progress.best_score:g}"
            return f"reached target_score={target:g} with {score}"
        patience, num_bad = self._config.patience, progress.validations_since_best
        if patience is None or num_bad < patience:
            return ""
        return f"early stopping: no improvement in {num_bad} validations"

    def fraction_done(self, step: int, progress: TrainingProgress) -> float:
        """Return how close the nearest limit is, from 0 to 1."""
        fractions = [value / limit for value, limit in self._limits(step, progress).values()]
        return min(1.0, max(fractions))

    def planned_steps(self, step: int, progress: TrainingProgress) -> int:
        """Estimate before a step, at the speed so far, how many steps training will take.

        It is `max_steps`, unless the limit of time or FLOPs is reached before.
        """
        limits, estimates = self._limits(step - 1, progress), [self._config.max_steps]
        for name in limits.keys() & {"max_minutes", "max_flops"}:
            value, limit = limits[name]
            if value > 0:
                estimates.append(max(step, math.ceil((step - 1) * limit / value)))
        return min(estimates)

    def _limits(self, step: int, progress: TrainingProgress) -> dict[str, tuple[float, float]]:
        values = {
            "max_steps": step,
            "max_epochs": progress.cursor.epoch,
            "max_minutes": progress.seconds / 60,
            "max_flops": progress.flops,
        }
        limits = {name: getattr(self._config, name) for name in values}
        return {name: (values[name], limit) for name, limit in limits.items() if limit is not None}


def take_snapshot(trainer: Trainer, progress: TrainingProgress, temporary_folder: Path) -> Snapshot:
    """Collect the contents of a checkpoint; a collective operation.

    Sharded tensors are written into `temporary_folder`, next to the checkpoints.
    """
    dist_context = trainer.dist_context
    tensors = {
        f"{_OPTIMIZER}{index}.{name}": tensor
        for index, state in dist_context.full_optimizer_state(trainer.optimizer).items()
        for name, tensor in state.items()
        if tensor is not None  # the momentum of plain SGD
    }
    if trainer.ema is not None:
        tensors |= _add_prefix(_EMA, trainer.ema.state_dict())
    sharded = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}
    folders: dict[str, Path] = {}
    if sharded:
        folders[_SHARDS] = temporary_folder / f".writing-{_SHARDS}"  # removed after a crash
        save_sharded_tensors(sharded, folders[_SHARDS], dist_context)
    for rank, states in enumerate(dist_context.gather_to_main(get_rng_states())):
        tensors |= _add_prefix(f"{_RNG}{rank}.", states)
    metadata = {**asdict(progress), _PRECISION: trainer.precision.state_dict()}
    replicated = {name: tensor for name, tensor in tensors.items() if name not in sharded}
    state_dict = dist_context.full_state_dict(trainer.model)
    return Snapshot(trainer.step, state_dict, replicated, metadata, folders)


def restore_snapshot(trainer: Trainer, snapshot: Snapshot, *, location: str) -> TrainingProgress:
    """Restore a trainer, on any number of ranks; `location` is named in errors."""
    load_into_model(trainer.model, snapshot.model_state_dict, location=location)
    tensors = _reshard(trainer, snapshot)
    optimizer_state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _strip_prefix(_OPTIMIZER, tensors).items():
        index, _, name = key.partition(".")
        optimizer_state.setdefault(int(index), {})[name] = tensor
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": optimizer_state, "param_groups": groups})
    if trainer.ema is not None:
        trainer.ema.load_state_dict(_strip_prefix(_EMA, tensors))
    # A rank that did not exist before keeps the random state of its seed.
    if states := _strip_prefix(f"{_RNG}{trainer.dist_context.rank}.", tensors):
        set_rng_states(states)
    trainer.step = snapshot.step
    trainer.precision.load_state_dict(snapshot.metadata[_PRECISION])
    return read_progress(snapshot)


def read_progress(snapshot: Snapshot) -> TrainingProgress:
    """Return the progress of a snapshot."""
    values = {name: value for name, value in snapshot.metadata.items() if name != _PRECISION}
    return TrainingProgress(**{**values, "cursor": DataCursor(*values["cursor"])})


def check_max_steps(max_steps: int, step: int, *, location: str) -> None:
    """Raise RunError if the limit of steps is below the step that a run has reached."""
    message = f"training.max_steps is {max_steps}, but this run has reached step {step}"
    hint = "raise it with --steps, or use another folder with --run"
    check(max_steps >= step, location, message, hint, RunError)


def finished_progress(limits: TrainingLimits, snapshot: Snapshot) -> TrainingProgress | None:
    """Return the progress of a run that is finished under these limits; None if it is not."""
    progress = read_progress(snapshot)
    reason = limits.reached(snapshot.step, progress) or limits.early_stopping_reason(progress)
    return progress if progress.stop_reason and reason else None


def _reshard(trainer: Trainer, snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the tensors of a snapshot, each sharded as its parameter is now."""
    groups = trainer.optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    averages = trainer.ema.state_dict() if trainer.ema is not None else {}

    def parameter_of(name: str) -> Tensor:
        if name.startswith(_EMA):
            return averages[name.removeprefix(_EMA)]
        return parameters[int(name.removeprefix(_OPTIMIZER).partition(".")[0])]

    def shard(name: str, tensor: Tensor) -> Tensor:
        if name.startswith(_RNG):
            return tensor
        return trainer.dist_context.shard_like(tensor, parameter_of(name))

    tensors = {name: shard(name, tensor) for name, tensor in snapshot.training_tensors.items()}
    folder = snapshot.extra_folders.get(_SHARDS)
    return tensors | (load_sharded_tensors(folder, parameter_of) if folder else {})


def _add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors[name] for name in names}


def save_sharded_tensors(
    tensors: Mapping[str, Tensor], folder: Path, dist_context: DistributedContext
) -> None:
    """Write this rank's shards; all ranks call it, and all raise if one fails."""
    # Slow to import and rarely used.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    error: HeedfulError | None = None
    if dist_context.is_main_process:
        try:
            if folder.exists():  # from a checkpoint that could not be saved
                remove_path(folder)
            check_free_space(folder, sum(tensor.nbytes for tensor in tensors.values()))
        except HeedfulError as caught:
            error = caught
    (has_failed,) = dist_context.all_reduce_any(error is not None)
    if has_failed:
        hint = "see the message of rank 0"
        raise error or DiskFullError(str(folder), "rank 0 cannot write here", hint)
    try:
        save(dict(tensors), storage_writer=FileSystemWriter(folder))
    except CheckpointException as failure:
        causes = [cause for cause, _ in failure.failures.values()]
        is_full = any(getattr(cause, "errno", 0) == errno.ENOSPC for cause in causes)
        with explain_os_errors(folder):
            raise OSError(errno.ENOSPC if is_full else errno.EIO, str(causes[0])) from failure


def load_sharded_tensors(folder: Path, reference_for: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """Read tensors, each sharded as the reference for its name."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    names = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {name: torch.empty_like(reference_for(name).detach()) for name in names}
    is_single_process = not any(map(is_sharded, tensors.values()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(tensors, storage_reader=FileSystemReader(folder), no_dist=is_single_process)
    return tensors
