"""Time of training steps by part: data, kernels, and the host between them; improvements.

A step waits for its batch (data), computes (kernels), and spends the rest on launching and Python
(host). The first step of a batch shape is slower: libraries choose kernels, a GPU captures a graph.
So the shapes of an epoch are read first, one step of each warms up, and only steps of these shapes
are measured. Invariant: measuring leaves a run as it is; its parameters are not even read.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch.profiler import ProfilerActivity, profile

from heedful.data.shuffling import DataCursor
from heedful.errors import format_count
from heedful.experiment.data_modules import load_data
from heedful.experiment.trainer_setup import build_model, build_trainer
from heedful.pytree import tensors_of
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task_data import DataModule, VocabSizes
from heedful.training.config import TrainingConfig
from heedful.training.prefetching import prefetch
from heedful.training.trainer import Trainer, choose_precision

NUM_PROFILED_STEPS, MIN_STEPS = 3, 3
MAX_OPERATORS = 6
# Shares of the time budget after which reading shapes and warming up end.
_READING, _WARMING_UP = 0.2, 0.6
# Shares of the time, or of the tokens, above which something can be done about them.
_MUCH_DATA, _MUCH_HOST, _MUCH_PADDING = 0.1, 0.3, 0.15

MicroBatches = list[Any]  # of one step


class StepProfile(NamedTuple):
    """Means over measured training steps, in seconds and tokens."""

    num_steps: int
    data_seconds: float  # until the batches of a step are there
    step_seconds: float
    kernel_seconds: float  # of the step, in which the device computes
    num_targets: float
    operators: dict[str, float]  # share of the kernel time, largest first

    @property
    def shares(self) -> dict[str, float]:
        """Shares of data, host and kernels in the time of a step."""
        total = self.data_seconds + self.step_seconds
        kernels = min(self.kernel_seconds, self.step_seconds)
        parts = {"data": self.data_seconds, "host": self.step_seconds - kernels, "kernels": kernels}
        return {name: seconds / total for name, seconds in parts.items()}

    @property
    def targets_per_second(self) -> float:
        """Target tokens, or values, per second."""
        return self.num_targets / (self.data_seconds + self.step_seconds)


class ShapeProfile(NamedTuple):
    """Batch shapes of the first epoch, or of as much of it as was read in time."""

    num_steps: int
    is_whole_epoch: bool
    num_shapes: int
    num_warm: int  # shapes with a step before the measurement: on a GPU, captured ones
    coverage: float  # share of the steps that have these shapes
    padding: float  # share of the positions


class TrainingProfile(NamedTuple):
    """The measurements of `heedful bench`."""

    steps: StepProfile
    shapes: ShapeProfile
    num_parameters: int
    plain_reason: str = ""  # why steps are not captured as CUDA graphs


def profile_training(
    recipe: Recipe, run: Run, *, device: torch.device, seconds: float, console: Console
) -> TrainingProfile:
    """Measure training steps of a new model on the data of a run, for a number of seconds."""
    data_module = load_data(recipe, run, console)
    messages: list[str] = []
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    trainer = build_trainer(
        recipe,
        build_model(recipe, sizes, data_module=data_module, device=device),
        lambda step: recipe.training.optimizer.learning_rate,
        data_module=data_module,
        log=messages.append,
        device=device,
    )
    trainer.model.train()
    num_batches = recipe.training.gradient_accumulation_steps
    with _timer(console, seconds) as timer:
        examples, counts, shapes = read_shapes(data_module, trainer, num_batches, timer)
        warm = warm_up(trainer, [examples[shape] for shape, _ in counts.most_common()], timer)
        coverage = sum(counts[shape] for shape in warm) / counts.total()
        shapes = shapes._replace(num_warm=len(warm), coverage=coverage)
        steps = measure_steps(data_module, trainer, num_batches, warm, timer)
    reasons = [line.split(": ", 1)[1] for line in messages if "without CUDA graphs" in line]
    num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return TrainingProfile(steps, shapes, num_parameters, next(iter(reasons), ""))


Timer = Callable[[str, float], bool]
"""Shows what is done, and returns whether this share of the time budget is spent."""


@contextmanager
def _timer(console: Console, seconds: float) -> Iterator[Timer]:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %")
    start = time.monotonic()
    is_hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
        task = bar.add_task("", total=seconds)

        def is_spent(description: str, share: float) -> bool:
            elapsed = time.monotonic() - start
            bar.update(task, description=description, completed=min(elapsed, seconds))
            return elapsed >= share * seconds

        yield is_spent


def shape_of(batches: MicroBatches) -> object:
    """Return the shapes of all tensors of a step."""
    return tuple(tensor.shape for batch in batches for tensor in tensors_of(batch))


def read_shapes(
    data_module: DataModule, trainer: Trainer, num_batches: int, timer: Timer
) -> tuple[dict[object, MicroBatches], Counter[object], ShapeProfile]:
    """Return a step of each shape, how often each occurs, and a summary."""
    stream = data_module.train_batches(DataCursor(0, 0))
    examples: dict[object, MicroBatches] = {}
    counts: Counter[object] = Counter()
    num_tokens, num_positions, is_whole_epoch = 0, 0, False
    for batches in _group(stream, num_batches):
        prepared = [trainer.prepare_batch(batch) for batch in batches]
        shape = shape_of(prepared)
        examples.setdefault(shape, prepared)
        counts[shape] += 1
        num_tokens += sum(batch.num_tokens for batch in batches)
        num_positions += sum(batch.num_positions for batch in prepared)
        is_whole_epoch = stream.cursor.epoch > 0
        if is_whole_epoch or timer("reading batches", _READING):
            break
    padding = 1 - num_tokens / num_positions
    shapes = ShapeProfile(counts.total(), is_whole_epoch, len(counts), 0, 0.0, padding)
    return examples, counts, shapes


def _group(stream: Any, count: int) -> Generator[MicroBatches, None, None]:
    iterator = iter(stream)
    while batches := list(islice(iterator, count)):
        yield batches


def warm_up(trainer: Trainer, examples: Sequence[MicroBatches], timer: Timer) -> set[object]:
    """Run a step of each shape while time is left; return these shapes."""
    trainer.train_step(examples[0])  # the optimizer creates its state
    warm = set()
    for batches in examples:
        trainer.train_step(batches)
        warm.add(shape_of(batches))
        if timer("warming up", _WARMING_UP):
            break
    return warm


def measure_steps(
    data_module: DataModule, trainer: Trainer, num_batches: int, warm: set[object], timer: Timer
) -> StepProfile:
    """Time steps of these shapes, as training runs them; skip others."""
    stream = _group(prefetch(data_module.train_batches(DataCursor(0, 0)), trainer), num_batches)
    data_seconds, num_read, num_targets = 0.0, 0, 0
    started: list[Any] = []
    last: list[MicroBatches] = []
    start = time.perf_counter()
    num_steps = 0
    while num_steps < MIN_STEPS or not timer("measuring", 1.0):
        before = time.perf_counter()
        batches = next(stream)
        data_seconds, num_read = data_seconds + time.perf_counter() - before, num_read + 1
        if shape_of(batches) not in warm:
            continue
        started.append(trainer.start_step(batches))
        num_steps, num_targets = num_steps + 1, num_targets + started[-1].num_targets
        last = [*last, batches][-NUM_PROFILED_STEPS:]
        if len(started) >= trainer.loss_sync_interval:
            _finish(started)
    _finish(started)
    elapsed = time.perf_counter() - start
    stream.close()  # ends the thread that prefetches
    operators = profile_operators(trainer, last)
    total = sum(operators.values()) or 1.0
    return StepProfile(
        num_steps,
        data_seconds / num_read,
        (elapsed - data_seconds) / num_steps,
        kernel_seconds(trainer, last, operators) / len(last),
        num_targets / num_steps,
        {name: share / total for name, share in islice(operators.items(), MAX_OPERATORS)},
    )


def _finish(started: list[Any]) -> None:
    for step in started:
        step.finish()
    started.clear()


def profile_operators(trainer: Trainer, steps: Sequence[MicroBatches]) -> dict[str, float]:
    """Return the seconds of each operator, largest first; on a GPU, those of its kernels.

    A graph has kernels but no operators, so steps run without one. Kernels that no operator of
    torch launched, such as those of Triton, are added up as "other kernels".
    """
    captured, trainer.captured_update = trainer.captured_update, None
    try:
        events = _profile(trainer, steps, [ProfilerActivity.CPU, ProfilerActivity.CUDA])
    finally:
        trainer.captured_update = captured
    is_gpu = _is_gpu(trainer)
    seconds: defaultdict[str, float] = defaultdict(float)
    for event in events:
        is_operator = event.key.startswith("aten::")
        time_us = event.self_device_time_total if is_gpu else event.self_cpu_time_total
        if is_operator and time_us > 0:
            seconds[event.key.removeprefix("aten::").strip("_")] += time_us / 1e6
    if is_gpu:
        total = sum(_kernel_seconds(events))
        seconds["other kernels"] += max(total - sum(seconds.values()), 0.0)
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def kernel_seconds(
    trainer: Trainer, steps: Sequence[MicroBatches], operators: dict[str, float]
) -> float:
    """Return the seconds in which the device computes; on a GPU, in steps as training runs them."""
    if not _is_gpu(trainer):
        return sum(operators.values())
    return sum(_kernel_seconds(_profile(trainer, steps, [ProfilerActivity.CUDA])))


def _is_gpu(trainer: Trainer) -> bool:
    return torch.device(trainer.device).type == "cuda"


def _profile(
    trainer: Trainer, steps: Sequence[MicroBatches], activities: Sequence[ProfilerActivity]
) -> Sequence[Any]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes to standard error
    is_gpu = _is_gpu(trainer)
    supported = [kind for kind in activities if kind != ProfilerActivity.CUDA or is_gpu]
    with profile(activities=supported, acc_events=True) as profiler:
        for batches in steps:
            trainer.train_step(batches)
    return profiler.key_averages()


def _kernel_seconds(events: Sequence[Any]) -> list[float]:
    kernels = (event for event in events if event.device_type.name == "CUDA")
    return [event.self_device_time_total / 1e6 for event in kernels]


def suggest_changes(
    result: TrainingProfile, config: TrainingConfig, device: torch.device
) -> list[str]:
    """Return suggestions to make training faster, the largest effect first."""
    shares, advice = result.steps.shares, []
    is_gpu = device.type == "cuda"
    if result.plain_reason:
        advice.append(f"steps run without CUDA graphs ({result.plain_reason}): change that setting")
    if is_gpu and not config.cuda_graphs:
        advice.append("capture steps as CUDA graphs: training.cuda_graphs=true")
    if is_gpu and config.precision == "fp32":
        advice.append("compute matrix products in bf16: training.precision=bf16")
    if shares["host"] > _MUCH_HOST:
        share = f"{shares['host']:.0%} of the time the device waits for the host"
        advice.append(f"{share}: larger batches (--auto-find-batch-size) need fewer launches")
    if shares["data"] > _MUCH_DATA:
        share = f"{shares['data']:.0%} of the time is spent on batches"
        advice.append(f"{share}: tokenize once with `heedful prepare`")
    if result.shapes.padding > _MUCH_PADDING:
        share = f"{result.shapes.padding:.0%} of the positions are padding"
        advice.append(f"{share}: sort more examples together (training.batching.bucket_size)")
    return advice


def format_profile(result: TrainingProfile, recipe: Recipe, device: torch.device) -> Iterator[str]:
    """Yield the lines that `heedful bench` prints."""
    steps, shapes = result.steps, result.shapes
    precision = recipe.training.precision or choose_precision(recipe.task.gpu_precision, device)
    yield f"model: {result.num_parameters:,} parameters on {device}, {precision}"
    yield f"speed: {steps.targets_per_second:,.0f} targets per second"
    milliseconds = 1e3 * (steps.data_seconds + steps.step_seconds)
    size = f"{steps.num_targets:,.0f} targets, {shapes.padding:.0%} padding"
    count = format_count(steps.num_steps, "step")
    yield f"step: {milliseconds:,.1f} ms for {size}; mean of {count}"
    epoch = "an epoch" if shapes.is_whole_epoch else "the part of an epoch that was read"
    is_captured = device.type == "cuda" and recipe.training.cuda_graphs and not result.plain_reason
    state = "captured" if is_captured else "warm"
    share = f"{shapes.num_warm} of them {state}, for {shapes.coverage:.0%} of the steps"
    count = format_count(shapes.num_steps, "step")
    yield f"shapes: {shapes.num_shapes} in {epoch} ({count}); {share}"
    yield "time: " + ", ".join(f"{name} {share:.0%}" for name, share in steps.shares.items())
    operators = (f"{name} {share:.0%}" for name, share in steps.operators.items())
    yield f"operators: {', '.join(operators)}"
    for advice in suggest_changes(result, recipe.training, device):
        yield f"advice: {advice}"
