"""Where the time of training steps goes: data, kernels, and the host between them; what would help.

A step waits for its batch (data), computes (kernels), and spends the rest on launching and Python
(host). Invariant: measuring leaves a run as it is; its parameters are not even read.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from heedful.data.batching import DataCursor
from heedful.experiment.data_modules import load_data
from heedful.experiment.trainer_setup import build_trainer
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task import VocabSizes
from heedful.training.config import TrainingConfig
from heedful.training.prefetching import prefetch
from heedful.training.trainer import Trainer, choose_precision

NUM_PROFILED_STEPS = 3
MAX_OPERATORS = 6
# Shares of the time, or of the tokens, above which something can be done about them.
_MUCH_DATA, _MUCH_HOST, _MUCH_PADDING = 0.1, 0.3, 0.15


class StepProfile(NamedTuple):
    """Means over training steps, in seconds and tokens."""

    data_seconds: float  # until the batches of a step are there
    step_seconds: float
    kernel_seconds: float  # of the step, in which the device computes
    num_targets: float
    padding: float  # share of the positions of a batch
    operators: dict[str, float]  # share of the kernel time, largest first
    num_parameters: int
    messages: tuple[str, ...]  # of the trainer, such as why steps are not captured

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


def profile_training(
    recipe: Recipe, run: Run, *, device: torch.device, num_steps: int, console: Console
) -> StepProfile:
    """Time training steps of a new model on the data of a run, after as many for warm-up."""
    data_module = load_data(recipe, run, console)
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    messages: list[str] = []
    trainer = build_trainer(
        recipe,
        sizes,
        lambda step: recipe.training.optimizer.learning_rate,
        data_module=data_module,
        log=messages.append,
        device=device,
    )
    trainer.model.train()
    stream = iter(prefetch(data_module.train_batches(DataCursor(0, 0)), trainer))
    steps = _micro_batches(stream, recipe.training.gradient_accumulation_steps)
    for batches in islice(steps, num_steps):
        trainer.train_step(batches)
    seconds = {"data": 0.0, "step": 0.0}
    num_targets, num_tokens, num_positions = 0, 0, 0
    for _ in range(num_steps):
        start = time.perf_counter()
        batches = next(steps)
        ready = time.perf_counter()
        metrics = trainer.train_step(batches)  # which waits for the loss
        seconds["data"] += ready - start
        seconds["step"] += time.perf_counter() - ready
        num_targets += metrics.num_targets
        num_tokens += metrics.num_tokens
        num_positions += sum(batch.num_positions for batch in batches)
    operators = profile_operators(trainer, [next(steps) for _ in range(NUM_PROFILED_STEPS)])
    total = sum(operators.values())
    stream.close()  # type: ignore[attr-defined]
    return StepProfile(
        seconds["data"] / num_steps,
        seconds["step"] / num_steps,
        total / NUM_PROFILED_STEPS,
        num_targets / num_steps,
        1 - num_tokens / num_positions,
        {name: share / total for name, share in operators.most_common(MAX_OPERATORS)},
        sum(parameter.numel() for parameter in trainer.model.parameters()),
        tuple(messages),
    )


def _micro_batches(stream: Iterator[Any], count: int) -> Iterator[list[Any]]:
    while batches := list(islice(stream, count)):
        yield batches


def profile_operators(trainer: Trainer, steps: Sequence[Sequence[Any]]) -> Counter[str]:
    """Return the seconds of each operator in training steps; on a GPU, of each kernel."""
    is_gpu = torch.device(trainer.device).type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes to standard error
    activity = ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        for batches in steps:
            trainer.train_step(batches)
    seconds: Counter[str] = Counter()
    for event in profiler.key_averages():
        time_us = event.self_device_time_total if is_gpu else event.self_cpu_time_total
        if is_gpu or event.key.startswith("aten::"):
            seconds[event.key.removeprefix("aten::")[:60]] += time_us / 1e6
    return seconds


def suggest_changes(
    step_profile: StepProfile, config: TrainingConfig, device: torch.device
) -> list[str]:
    """Return what would make training faster, the largest effect first."""
    shares, advice = step_profile.shares, []
    is_gpu = device.type == "cuda"
    advice += [f"{message}; other settings may allow them" for message in step_profile.messages]
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
    if step_profile.padding > _MUCH_PADDING:
        share = f"{step_profile.padding:.0%} of the positions are padding"
        advice.append(f"{share}: sort more examples together (training.batching.bucket_size)")
    return advice


def format_profile(
    step_profile: StepProfile, recipe: Recipe, device: torch.device
) -> Iterator[str]:
    """Yield the lines that `heedful bench` prints."""
    milliseconds = 1e3 * (step_profile.data_seconds + step_profile.step_seconds)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in step_profile.shares.items())
    parameters = f"{step_profile.num_parameters:,} parameters"
    precision = recipe.training.precision or choose_precision(recipe.task.gpu_precision, device)
    yield f"model: {parameters} on {device}, {precision}"
    yield f"speed: {step_profile.targets_per_second:,.0f} targets per second"
    size = f"{step_profile.num_targets:,.0f} targets, {step_profile.padding:.0%} padding"
    yield f"step: {milliseconds:,.1f} ms for {size}"
    yield f"time: {shares}"
    operators = (f"{name} {share:.0%}" for name, share in step_profile.operators.items())
    yield f"kernels: {', '.join(operators)}"
    for advice in suggest_changes(step_profile, recipe.training, device):
        yield f"advice: {advice}"
