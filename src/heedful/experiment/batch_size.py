"""Fitting: which is the largest batch that memory has room for?

Tried on the worst batch that the data can give, not on the mean one. A GPU is asked until it
refuses. A processor's memory cannot be asked, since who asks too much is killed: so a few sizes
are measured, and bytes = a + b * rows is solved for what is free.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.experiment.environment import free_memory, resident_memory
from heedful.experiment.memory_trials import (
    BatchShape,
    MemoryProbe,
    MemoryTrial,
    MemoryTrialProcess,
    configured_batch_size,
    is_out_of_memory,
)
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task import DataModule
from heedful.training.distributed import DistributedContext

# Sizing: which is the largest number that fits, in as few trials as possible?
#
# Law: what is found was tried, and had room.

_TOLERANCE = 0.05  # how near to the largest is near enough
_MIN_GROWTH_BYTES = (
    64 << 20
)  # bytes between the smallest and the largest trial that tell them from noise


def largest_fitting(fits: Callable[[int], bool], start: int, max_rows: int) -> int:
    """Find about the largest number up to `most` that fits: doubling, then halving the gap."""
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


def measure_until_full(
    measure: Callable[[int], float], start: int, max_rows: int, budget_bytes: float
) -> dict[int, float]:
    """Measure a few numbers of rows, at last about the largest up to `most` that has room."""
    points = dict[int, float]()
    rows = max(1, start // 16)
    while (taken := points.setdefault(rows, measure(rows))) > budget_bytes and rows > 1:
        rows //= 4 if rows >= 4 else 2
    if taken > budget_bytes:
        return points
    first = taken
    while (further := min(4 * rows, _next_size(points, max_rows, budget_bytes))) > rows:
        rows = further
        taken = points[rows] = measure(rows)
        if taken > budget_bytes or (taken - first > _MIN_GROWTH_BYTES and len(points) >= 3):
            break
    for _ in range(4):
        rows = _interpolate_size(points, max_rows, budget_bytes)
        if rows in points:
            break
        points[rows] = measure(rows)
        if (1 - _TOLERANCE) * budget_bytes <= points[rows] <= budget_bytes:
            break
    return points


def _next_size(points: dict[int, float], max_rows: int, budget_bytes: float) -> int:
    if len(points) > 1:
        return _interpolate_size(points, max_rows, budget_bytes)
    # Of one point it is only known that bytes are no more than in proportion to rows.
    ((rows, taken),) = points.items()
    return min(max_rows, int(rows * budget_bytes / taken))


def _interpolate_size(points: dict[int, float], max_rows: int, budget_bytes: float) -> int:
    """Where a line through what was measured meets the room, between what did and did not fit."""
    good = max(rows for rows, taken in points.items() if taken <= budget_bytes)
    bad = min(
        (rows for rows, taken in points.items() if taken > budget_bytes), default=max_rows + 1
    )
    known = sorted(rows for rows, taken in points.items() if math.isfinite(taken))
    if bad <= max_rows:
        known = [good, bad]  # where bytes grow faster than rows, what lies between fits
    if len(known) < 2 or not math.isfinite(points[known[-1]]):
        return (good + bad) // 2
    per_row, fixed = np.polyfit(known, [points[rows] for rows in known], deg=1)
    solved = (budget_bytes - fixed) / per_row if per_row > 0 else max_rows
    return int(min(max(solved, good), bad - 1))


MessageLogger = Callable[[str], None]

FREE_MEMORY_FRACTION = 0.8  # of a processor's memory: others want some too
_NUM_REPORTED_TRIALS = 4  # trials that are told of
GPU_SAFETY_FRACTION = 0.9  # of what a GPU took: memory is more scattered later


def with_largest_batch_size(
    recipe: Recipe,
    data_module: DataModule,
    run: Run,
    device: torch.device,
    dist_context: DistributedContext,
    *,
    limit: int | None,
    log_message: MessageLogger,
) -> Recipe:
    """Give a recipe, its run and its corpora the largest batch that fits; one rank looks for it."""
    found = 0
    if dist_context.is_main_process:
        found = find_largest_batch_size(
            recipe,
            data_module,
            device,
            memory_limit=limit,
            world_size=dist_context.world_size,
            log_message=log_message,
        )
    size = int(dist_context.all_reduce(torch.tensor(float(found), dtype=torch.float64)))
    recipe = _with_batch_size(recipe, size)
    if dist_context.is_main_process:
        run.replace_recipe(recipe)
    dist_context.barrier()
    data_module.recipe = recipe
    return recipe


def with_saved_batch_size(recipe: Recipe, run: Run) -> Recipe:
    """Give a recipe the batch that was found when its run was begun, if it was."""
    return (
        _with_batch_size(recipe, configured_batch_size(run.read_recipe())) if run.exists else recipe
    )


def find_largest_batch_size(
    recipe: Recipe,
    data_module: DataModule,
    device: torch.device,
    *,
    log_message: MessageLogger,
    memory_limit: int | None = None,
    world_size: int = 1,
) -> int:
    """Find the largest `max_tokens` (pairs) or `n_best` of streams (text) that fits.

    `limit` is the most bytes that this process, or its part of a GPU, may take; `world_size` says among
    how many processes a batch is divided.
    """
    asked = MemoryProbe.from_recipe(recipe, data_module)
    on_gpu = device.type == "cuda"
    found = (
        _search_gpu(asked, device, memory_limit)
        if on_gpu
        else _search_cpu(asked, memory_limit, world_size)
    )
    size = asked.size(found.shape, min(found.rows * world_size, asked.max_batch_size))
    for line in (*found.messages, *_describe_change(recipe, size)):
        log_message(f"memory-fit: {line}")
    return size


class _SearchResult(NamedTuple):
    shape: BatchShape
    rows: int
    messages: list[str]


def _search_gpu(probe: MemoryProbe, device: torch.device, limit: int | None) -> _SearchResult:
    trial_messages = list[str]()
    index = torch.cuda.current_device() if device.index is None else device.index
    device = torch.device("cuda", index)
    total = torch.cuda.get_device_properties(device).total_memory
    with torch.random.fork_rng([device]):
        form = probe.worst_shape(
            MemoryTrial(probe.recipe, probe.vocab_sizes, device).saved_activation_bytes
        )

        def fits(rows: int) -> bool:
            _free_cuda_memory()
            try:
                MemoryTrial(probe.recipe, probe.vocab_sizes, device).run_update(form, rows)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                trial_messages.append(f"{probe.size(form, rows):,} did not")
                return False
            trial_messages.append(f"{probe.size(form, rows):,} fitted")
            return True

        torch.cuda.set_per_process_memory_fraction(min(1.0, (limit or total) / total), device)
        try:
            rows = largest_fitting(
                fits, probe.batch_size(form), math.ceil(probe.max_batch_size / GPU_SAFETY_FRACTION)
            )
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
            _free_cuda_memory()
    room = min(limit or total, total)
    if not rows:
        raise _does_not_fit_error(form, room)
    kept = max(1, math.floor(GPU_SAFETY_FRACTION * rows))
    told = [
        f"batches of {_describe_shape(form)}, in {probe.unit}: {', '.join(trial_messages[-_NUM_REPORTED_TRIALS:])}",
        f"{100 * GPU_SAFETY_FRACTION:g} % of the largest is taken, of {_format_bytes(room)} on {device}",
    ]
    return _SearchResult(form, kept, told)


def _free_cuda_memory() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def _search_cpu(probe: MemoryProbe, limit: int | None, world_size: int) -> _SearchResult:
    free = free_memory()
    if limit is not None:
        free = min(free, limit - resident_memory())
    # Ranks of one machine share its memory.
    room = (
        FREE_MEMORY_FRACTION
        * free
        / min(world_size, int(os.environ.get("LOCAL_WORLD_SIZE", world_size)))
    )
    with _PeakMemoryProbe(probe) as scales:
        points = measure_until_full(
            scales, probe.batch_size(scales.shape), probe.max_batch_size, room
        )
    form = scales.shape
    fitting = [rows for rows, taken in points.items() if taken <= room]
    if not fitting:
        raise _does_not_fit_error(form, room)
    trial_messages = ", ".join(
        f"{probe.size(form, rows):,} took {_format_bytes(points[rows])}"
        for rows in sorted(points)[-_NUM_REPORTED_TRIALS:]
    )
    return _SearchResult(
        form,
        max(fitting),
        [
            f"batches of {_describe_shape(form)}, in {probe.unit}: {trial_messages}, beside the program itself",
            f"room is {100 * FREE_MEMORY_FRACTION:g} % of the {_format_bytes(free)} free: {_format_bytes(room)}",
        ],
    )


class _PeakMemoryProbe:
    """Weighs updates; a peak only ever rises, so for a smaller one the process begins anew."""

    def __init__(self, probe: MemoryProbe) -> None:
        self._probe = probe
        self._last = 0
        self._process = MemoryTrialProcess(probe.recipe, probe.vocab_sizes)
        self.shape = probe.worst_shape(self._process.saved_activation_bytes)

    def __enter__(self) -> _PeakMemoryProbe:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.__exit__(*exception)

    def __call__(self, rows: int) -> float:
        if rows < self._last:
            self._process.__exit__()
            self._process = MemoryTrialProcess(self._probe.recipe, self._probe.vocab_sizes)
        self._last = rows
        return self._process.peak_bytes(self.shape, rows)


def _describe_change(recipe: Recipe, size: int) -> Iterator[str]:
    name, before = _batch_size_setting(recipe), configured_batch_size(recipe)
    yield f"mlm_probability: {name}={size} (the recipe has {before})"
    if size != before:
        rate = recipe.training.optimizer.learning_rate
        yield (
            f"this changes what is learned: the learning rate of {rate:g} was chosen for {before}, "
            f"and updates are now {size / before:.3g} times as large, so fewer see the same data; "
            "try others with --set training.optimizer.learning_rate=..."
        )


def _batch_size_setting(recipe: Recipe) -> str:
    return (
        "data.lm_batching.batch_size" if recipe.is_monolingual else "training.batching.max_tokens"
    )


def _with_batch_size(recipe: Recipe, size: int) -> Recipe:
    settings = recipe.model_dump(mode="json")
    *path, last = _batch_size_setting(recipe).split(".")
    section = settings
    for name in path:
        section = section[name]
    section[last] = size
    return validate_settings(Recipe, settings, location="--auto-find-batch-size")


def _does_not_fit_error(shape: BatchShape, budget_bytes: float) -> ConfigError:
    return ConfigError(
        "--auto-find-batch-size",
        f"there is no room for even one row of {_describe_shape(shape)}: {_format_bytes(max(0, budget_bytes))}",
        "take a smaller model, leave out the longest texts, or allow more with --memory-limit",
    )


def _describe_shape(shape: BatchShape) -> str:
    source = f"{shape.source_length} + " if shape.source_length else ""
    return f"the worst texts ({source}{shape.target_length} tokens)"


def _format_bytes(count: float) -> str:
    if not math.isfinite(count):
        return "too much"
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
