"""--auto-find-batch-size: the largest batch of the longest sequences that fits into memory.

Training steps on random tokens run in a child process, with doubled numbers of rows, then bisected.
Invariant: the result was tried and did fit; memory and random numbers of this process are not
touched.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from heedful.config import validate_settings
from heedful.errors import RunError, check, format_count
from heedful.experiment import environment
from heedful.experiment.plan import TrainingPlan
from heedful.experiment.trainer_setup import build_model, build_trainer
from heedful.parallel import WorkerDiedError, WorkerProcess
from heedful.recipes import Recipe
from heedful.tasks.task_data import BatchShape, DataModule, VocabSizes
from heedful.training.distributed import DistributedContext

_OPTION = "--auto-find-batch-size"
_TOLERANCE = 0.05  # relative distance to the largest batch at which the search stops
_MAX_UPDATES = 20  # with fp16 the first few may be skipped
CPU_MEMORY_FRACTION = 0.8  # of the free memory: other processes need some too
_OUT_OF_MEMORY = (  # "memoryerror" is in the traceback of a worker
    *("out of memory", "allocate memory", "not enough memory"),
    *("alloc_failed", "bad_alloc", "memoryerror"),
    *("enforce fail", "error return without exception set"),  # cut short for want of memory
)
GPU_ROWS_FRACTION = 0.9  # of the largest batch: memory is more fragmented later


def with_largest_batch_size(
    plan: TrainingPlan, data_module: DataModule, dist_context: DistributedContext
) -> TrainingPlan:
    """Set the largest batch size that fits in plan, run and data; the main process searches."""
    size = 0
    if dist_context.is_main_process:
        size = find_largest_batch_size(
            plan.recipe,
            data_module,
            plan.device,
            memory_limit=plan.memory_limit,
            world_size=dist_context.world_size,
            log=plan.log,
        )
    size = int(dist_context.all_reduce(torch.tensor(float(size), dtype=torch.float64)))
    plan = plan.with_recipe(_with_batch_size(plan.recipe, size))
    if dist_context.is_main_process:
        plan.run.replace_recipe(plan.recipe)
    dist_context.barrier()
    data_module.recipe = plan.recipe
    return plan


def with_saved_batch_size(plan: TrainingPlan) -> TrainingPlan:
    """Set the batch size that was found when the run was started."""
    recipe, run = plan.recipe, plan.run
    if not (run.exists and run.is_saved):
        return plan
    return plan.with_recipe(
        _with_batch_size(recipe, recipe.task.data.batch_size(run.read_recipe()))
    )


def _with_batch_size(recipe: Recipe, size: int) -> Recipe:
    settings = recipe.model_dump(mode="json")
    *path, last = recipe.task.data.batch_size_setting.split(".")
    reduce(getitem, path, settings)[last] = size
    return validate_settings(Recipe, settings, location=_OPTION)


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

    `memory_limit` is in bytes, per process or GPU; `world_size` processes divide a batch.
    """
    task = recipe.task
    budget, budget_source = _memory_budget(device, memory_limit, world_size)
    fraction = GPU_ROWS_FRACTION if device.type == "cuda" else 1.0
    max_rows = task.data.max_rows(data_module)
    trials: dict[int, bool] = {}
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    job = MemoryTrial(recipe, sizes, str(device), budget, torch.get_num_threads())
    with TrialProcess(job) as process:
        shape = worst_shape(task.data.worst_case_shapes(data_module), process.activation_bytes)

        def fits(rows: int) -> bool:
            trials[rows] = process.peak_bytes(shape, rows) <= budget
            return trials[rows]

        start = task.data.batch_size(recipe) // task.data.row_size(shape)
        rows = math.floor(fraction * largest_fitting(fits, start, math.ceil(max_rows / fraction)))
    lengths = f"{shape.source_length} + " if shape.source_length else ""
    sequences = f"longest sequences ({lengths}{format_count(shape.target_length, 'token')})"
    message = f"not even one row of the {sequences} fits into {_format_bytes(max(0, budget))}"
    hint = "use a smaller model, filter out the longest texts, or raise --memory-limit"
    check(rows or any(trials.values()), _OPTION, message, hint)
    row_size = task.data.row_size(shape)
    size = row_size * min(max(1, rows) * world_size, max_rows)
    tried = sorted({(row_size * rows, fit) for rows, fit in trials.items()})
    good = [f"{size:,} fits" for size, fit in tried if fit][-2:]
    bad = [f"{size:,} does not" for size, fit in tried if not fit][:2]
    log(f"auto batch size: {sequences}, in {task.data.batch_size_unit}: {', '.join(good + bad)}")
    log(f"auto batch size: memory budget: {_format_bytes(budget)} {budget_source}")
    before, rate = task.data.batch_size(recipe), recipe.training.optimizer.learning_rate
    log(f"auto batch size: {task.data.batch_size_setting}={size} (the recipe has {before})")
    if size != before:
        log(
            f"auto batch size: this changes training: the learning rate of {rate:g} was chosen for "
            f"{before}, and batches are now {size / before:.3g} times as large, so an epoch has "
            "fewer steps; try other rates with --set training.optimizer.learning_rate=..."
        )
    return size


def _memory_budget(device: torch.device, limit: int | None, world_size: int) -> tuple[float, str]:
    """Return the bytes that training may use, and how they were determined."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        source = f"on {device}; {100 * GPU_ROWS_FRACTION:g} % of the largest batch is used"
        return min(limit or total, total), source
    free = environment.free_memory()
    if limit is not None:
        free = min(free, limit - environment.resident_memory())
    # The processes of one machine share its memory.
    num_local = min(world_size, int(os.environ.get("LOCAL_WORLD_SIZE", world_size)))
    source = f"({100 * CPU_MEMORY_FRACTION:g} % of the {_format_bytes(free)} free)"
    return CPU_MEMORY_FRACTION * free / num_local, source


def _format_bytes(num_bytes: float) -> str:
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{num_bytes / (1 << 20):.0f} MiB"


def worst_shape(
    shapes: list[BatchShape], activation_bytes: Callable[[BatchShape, int], float]
) -> BatchShape:
    """Return the shape with the most activation bytes per token; parameters do not count."""
    if len(shapes) == 1:
        return shapes[0]

    def bytes_per_token(shape: BatchShape) -> float:
        return (activation_bytes(shape, 2) - activation_bytes(shape, 1)) / sum(shape)

    return max(shapes, key=bytes_per_token)


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


class Trial(NamedTuple):
    """A measurement: the peak memory of training steps, or the bytes of activations."""

    shape: BatchShape
    rows: int
    counts_activations: bool = False


@dataclass
class MemoryTrial:
    """Training steps in another process, which may be refused more than `max_bytes`."""

    recipe: Recipe
    sizes: VocabSizes
    device: str
    max_bytes: float | None = None
    num_threads: int = 1

    def setup(self, *, is_shared: bool) -> Self:
        """Build the trainer."""
        del is_shared
        torch.set_num_threads(self.num_threads)
        device = torch.device(self.device)
        with torch.device("meta"):
            torch.nn.Embedding(1, 1)  # imports what models need: with little memory imports fail
        # What every such process needs is not charged.
        self._baseline = 0 if device.type == "cuda" else environment.resident_memory()
        if self.max_bytes is not None:
            environment.limit_memory(device, self.max_bytes)
        model = build_model(self.recipe, self.sizes, device=device)
        self._trainer = build_trainer(self.recipe, model, lambda step: 0.0, device=device)
        return self

    def __call__(self, trial: Trial) -> float:
        """Return the bytes of a trial; infinity if it ran out of memory."""
        try:
            if trial.counts_activations:
                return self.activation_bytes(trial.shape, trial.rows)
            self._run_step(trial.shape, trial.rows)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return math.inf
        return environment.peak_memory(torch.device(self.device)) - self._baseline

    def _run_step(self, shape: BatchShape, rows: int) -> None:
        """Run steps until one was taken with the optimizer's state in memory."""
        # One micro-batch, beside the gradients of an earlier one.
        num_batches = min(2, self.recipe.training.gradient_accumulation_steps)
        micro_batches = [self._dummy_batch(shape, rows)] * num_batches
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
            self._trainer.train_step([self._dummy_batch(shape, rows)])
        return sum(saved.values())

    def _dummy_batch(self, shape: BatchShape, rows: int) -> Any:
        return self.recipe.task.data.dummy_batch(self.recipe.model, self.sizes, shape, rows)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory ran out: libraries word it differently."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in message for phrase in _OUT_OF_MEMORY)


class TrialProcess:
    """Runs trials in a child, which is restarted if its peak would hide that of a smaller one."""

    def __init__(self, job: MemoryTrial) -> None:
        self._job = job
        self._max_rows = 0
        self._worker: WorkerProcess[Trial, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def activation_bytes(self, shape: BatchShape, rows: int) -> float:
        """Return the bytes that a forward pass saves for the backward pass."""
        return self._run(Trial(shape, rows, counts_activations=True))

    def peak_bytes(self, shape: BatchShape, rows: int) -> float:
        """Return the peak memory of training steps."""
        if rows < self._max_rows:
            self.__exit__()
        self._max_rows = rows
        return self._run(Trial(shape, rows))

    def _run(self, trial: Trial) -> float:
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
            hint = f"use the same command without {_OPTION}"
            raise RunError(_OPTION, f"a trial step failed: {error}", hint) from error
