"""--auto-find-batch-size: the largest batch of the longest sequences that fits into memory.

Training steps on random tokens run in a child process, with doubled numbers of rows until one does
not fit, then with bisection. Invariant: the batch size that is returned was tried and did fit, and
neither memory nor random numbers of this process are touched.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from heedful.config import validate_settings
from heedful.errors import ConfigError, RunError
from heedful.experiment.environment import (
    free_memory,
    limit_memory,
    peak_memory,
    resident_memory,
)
from heedful.experiment.job import build_trainer
from heedful.parallel import WorkerDiedError, WorkerProcess
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task import BatchShape, DataModule, VocabSizes
from heedful.training.distributed import DistributedContext

_OPTION = "--auto-find-batch-size"
_TOLERANCE = 0.05  # relative distance to the largest batch at which the search stops
_MAX_UPDATES = 20  # with fp16 the first few may be skipped
CPU_MEMORY_FRACTION = 0.8  # of the free memory: other processes need some too
GPU_ROWS_FRACTION = 0.9  # of the largest batch: memory is more fragmented later


def with_largest_batch_size(
    recipe: Recipe,
    data_module: DataModule,
    run: Run,
    device: torch.device,
    dist_context: DistributedContext,
    *,
    limit: int | None,
    log: Callable[[str], None],
) -> Recipe:
    """Set the largest batch size that fits in recipe, run and data; the main process searches."""
    size = 0
    if dist_context.is_main_process:
        world_size = dist_context.world_size
        size = find_largest_batch_size(
            recipe, data_module, device, memory_limit=limit, world_size=world_size, log=log
        )
    size = int(dist_context.all_reduce(torch.tensor(float(size), dtype=torch.float64)))
    recipe = _with_batch_size(recipe, size)
    if dist_context.is_main_process:
        run.replace_recipe(recipe)
    dist_context.barrier()
    data_module.recipe = recipe
    return recipe


def with_saved_batch_size(recipe: Recipe, run: Run) -> Recipe:
    """Set the batch size that was found when the run was started."""
    if not run.exists:
        return recipe
    return _with_batch_size(recipe, recipe.task.batch_size(run.read_recipe()))


def find_largest_batch_size(
    recipe: Recipe,
    data_module: DataModule,
    device: torch.device,
    *,
    log: Callable[[str], None],
    memory_limit: int | None = None,
    world_size: int = 1,
) -> int:
    """Return the largest value of the task's batch size setting that fits.

    `memory_limit` is in bytes, for this process or for its part of a GPU; a batch is divided among
    `world_size` processes.
    """
    task, is_gpu = recipe.task, device.type == "cuda"
    budget, description = _memory_budget(device, memory_limit, world_size)
    fraction = GPU_ROWS_FRACTION if is_gpu else 1.0
    max_rows = task.max_rows(data_module)
    trials: dict[int, bool] = {}
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    job = _TrialJob(recipe, sizes, str(device), budget, torch.get_num_threads())
    with _TrialProcess(job) as process:
        shape = _worst_shape(task.worst_case_shapes(data_module), process.activation_bytes)

        def fits(rows: int) -> bool:
            trials[rows] = process.peak_bytes(shape, rows) <= budget
            return trials[rows]

        start = task.rows_per_batch(recipe, shape)
        rows = math.floor(fraction * largest_fitting(fits, start, math.ceil(max_rows / fraction)))
    lengths = f"{shape.source_length} + " if shape.source_length else ""
    sequences = f"longest sequences ({lengths}{shape.target_length} tokens)"
    if not rows and not any(trials.values()):
        raise ConfigError(
            _OPTION,
            f"not even one row of the {sequences} fits into {_format_bytes(max(0, budget))}",
            "use a smaller model, filter out the longest texts, or raise --memory-limit",
        )
    size = task.batch_size_of_rows(min(max(1, rows) * world_size, max_rows), shape)
    sizes_tried = {task.batch_size_of_rows(rows, shape): fit for rows, fit in trials.items()}
    log(f"auto batch size: {sequences}, in {task.batch_size_unit}: {_format_trials(sizes_tried)}")
    log(f"auto batch size: {description}")
    for line in _describe_change(recipe, size):
        log(f"auto batch size: {line}")
    return size


def largest_fitting(fits: Callable[[int], bool], start: int, max_rows: int) -> int:
    """Return about the largest number up to `max_rows` that fits: double, then bisect."""
    good, bad, rows = 0, max_rows + 1, max(1, min(start, max_rows))
    while good < rows < bad:
        good, bad = (rows, bad) if fits(rows) else (good, rows)
        if bad > max_rows:
            rows = min(2 * good, max_rows)
        elif bad - good <= _TOLERANCE * good:
            break
        else:
            rows = (good + bad) // 2 if good else bad // 2
    return good


class _TrialJob(NamedTuple):
    """Runs training steps in another process."""

    recipe: Recipe
    sizes: VocabSizes
    device: str
    max_bytes: float
    num_threads: int

    def setup(self, *, is_shared: bool) -> MemoryTrial:
        del is_shared
        torch.set_num_threads(self.num_threads)
        return MemoryTrial(
            self.recipe, self.sizes, torch.device(self.device), max_bytes=self.max_bytes
        )


class _Trial(NamedTuple):
    shape: BatchShape
    rows: int
    counts_activations: bool = False  # instead of the peak


class MemoryTrial:
    """A trainer for trial steps; what it needs beyond `max_bytes` is refused where possible."""

    def __init__(
        self,
        recipe: Recipe,
        sizes: VocabSizes,
        device: torch.device,
        *,
        max_bytes: float | None = None,
    ) -> None:
        self._task = recipe.task
        self._sizes = sizes
        self._device = device
        # One micro-batch, beside the gradients of an earlier one.
        self._num_batches = min(2, recipe.training.gradient_accumulation_steps)
        # What every such process needs is not charged.
        self._baseline = 0 if device.type == "cuda" else resident_memory()
        if max_bytes is not None:
            limit_memory(device, max_bytes)
        self._trainer = build_trainer(recipe, sizes, lambda step: 0.0, device=device)

    def __call__(self, trial: _Trial) -> float:
        """Return the bytes of a trial; infinity if it ran out of memory."""
        try:
            if trial.counts_activations:
                return self.activation_bytes(trial.shape, trial.rows)
            self.run_update(trial.shape, trial.rows)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return math.inf
        return peak_memory(self._device) - self._baseline

    def run_update(self, shape: BatchShape, rows: int) -> None:
        """Run steps until one was taken with the optimizer's state in memory."""
        micro_batches = [self._task.dummy_batch(self._sizes, shape, rows)] * self._num_batches
        num_taken = 0
        for _ in range(_MAX_UPDATES):
            had_state = bool(self._trainer.optimizer.state)
            num_taken += not self._trainer.train_step(micro_batches).skip_reason
            if had_state or num_taken == 2:
                break

    def activation_bytes(self, shape: BatchShape, rows: int) -> int:
        """Return the bytes that a forward pass saves for the backward pass."""
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            self._trainer.train_step([self._task.dummy_batch(self._sizes, shape, rows)])
        return sum(saved.values())


class _TrialProcess:
    """Runs trials in a child, which is restarted if its peak would hide that of a smaller one."""

    def __init__(self, job: _TrialJob) -> None:
        self._job = job
        self._max_rows = 0
        self._worker: WorkerProcess[_Trial, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def activation_bytes(self, shape: BatchShape, rows: int) -> float:
        return self._run(_Trial(shape, rows, counts_activations=True))

    def peak_bytes(self, shape: BatchShape, rows: int) -> float:
        if rows < self._max_rows:
            self.__exit__()
        self._max_rows = rows
        return self._run(_Trial(shape, rows))

    def _run(self, trial: _Trial) -> float:
        if self._worker is None:
            self._worker = WorkerProcess(self._job, name=_OPTION)
        try:
            return self._worker.run(trial)
        except WorkerDiedError as error:
            self.__exit__()
            if error.returncode < 0:  # killed for want of memory
                return math.inf
            raise
        except RuntimeError as error:
            self.__exit__()
            if is_out_of_memory(error):  # not even the model fits
                return math.inf
            raise RunError(
                _OPTION, f"a trial step failed: {error}", f"use the same command without {_OPTION}"
            ) from error


def _worst_shape(
    shapes: list[BatchShape], activation_bytes: Callable[[BatchShape, int], float]
) -> BatchShape:
    """Return the shape with the most activation bytes per token; parameters do not count."""
    if len(shapes) == 1:
        return shapes[0]

    def bytes_per_token(shape: BatchShape) -> float:
        return (activation_bytes(shape, 2) - activation_bytes(shape, 1)) / sum(shape)

    return max(shapes, key=bytes_per_token)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory ran out: libraries have different words for it."""
    message = str(error).lower()
    phrases = ("out of memory", "allocate memory", "not enough memory", "alloc_failed", "bad_alloc")
    return isinstance(error, MemoryError) or any(phrase in message for phrase in phrases)


def _memory_budget(device: torch.device, limit: int | None, world_size: int) -> tuple[float, str]:
    """Return the bytes that training may use, and how they were determined."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        budget = min(limit or total, total)
        used = f"{100 * GPU_ROWS_FRACTION:g} % of the largest batch is used"
        return budget, f"memory budget: {_format_bytes(budget)} on {device}; {used}"
    free = free_memory()
    if limit is not None:
        free = min(free, limit - resident_memory())
    # The processes of one machine share its memory.
    num_local = min(world_size, int(os.environ.get("LOCAL_WORLD_SIZE", world_size)))
    budget_cpu = CPU_MEMORY_FRACTION * free / num_local
    fraction = f"{100 * CPU_MEMORY_FRACTION:g} % of the {_format_bytes(free)} free"
    return budget_cpu, f"memory budget: {_format_bytes(budget_cpu)} ({fraction})"


def _describe_change(recipe: Recipe, size: int) -> Iterator[str]:
    name, before = recipe.task.batch_size_setting, recipe.task.batch_size(recipe)
    yield f"{name}={size} (the recipe has {before})"
    if size != before:
        rate = recipe.training.optimizer.learning_rate
        yield (
            f"this changes training: the learning rate of {rate:g} was chosen for {before}, and "
            f"batches are now {size / before:.3g} times as large, so an epoch has fewer steps; "
            "try other rates with --set training.optimizer.learning_rate=..."
        )


def _with_batch_size(recipe: Recipe, size: int) -> Recipe:
    settings = recipe.model_dump(mode="json")
    *path, last = recipe.task.batch_size_setting.split(".")
    section = settings
    for name in path:
        section = section[name]
    section[last] = size
    return validate_settings(Recipe, settings, location=_OPTION)


def _format_trials(trials: Mapping[int, bool]) -> str:
    """List the largest batch sizes that fit and the smallest that do not."""
    fitting = sorted(size for size, fits in trials.items() if fits)[-2:]
    failing = sorted(size for size, fits in trials.items() if not fits)[:2]
    return ", ".join(
        [*(f"{size:,} fits" for size in fitting), *(f"{size:,} does not" for size in failing)]
    )


def _format_bytes(num_bytes: float) -> str:
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{num_bytes / (1 << 20):.0f} MiB"
