"""Print the range of what the solutions of experiments give over ten seeds.

python -m tools.exercise_ranges [NUMBER ...] [--seeds 10]     such as 2.5; without any, all

Bounds of the checker lie outside these ranges. Exercises whose answers are runs are left out.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from heedful.course.exercise import Exercise, load_text
from heedful.course.registry import exercises

LONG = 10  # seconds; shorter exercises have exact answers


def experiments() -> dict[str, Exercise]:
    """Return the exercises whose answer is measured."""
    return {
        number: exercise
        for number, exercise in exercises().items()
        if exercise.seconds > LONG and not exercise.runs
    }


def measure(exercise: Exercise, num_seeds: int) -> tuple[dict[str, list[float]], int]:
    """Return each number of the outputs by seed, and how many seeds were refused."""
    solution = load_text(exercise.solution)
    values: dict[str, list[float]] = {}
    refused = 0
    for seed in range(num_seeds):
        for inputs in exercise.instances(seed):
            outputs = exercise.run(solution, inputs)
            refused += bool(exercise.accept and exercise.accept(outputs, inputs))
            for name, value in numbers_in("", outputs):
                values.setdefault(name, []).append(value)
    return values, refused


def numbers_in(name: str, value: Any) -> list[tuple[str, float]]:
    """Return the numbers in nested outputs with their names."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = ((str(place), part) for place, part in enumerate(value, 1))
    else:
        return [(name, float(value))]
    return [one for key, part in parts for one in numbers_in(f"{name} {key}".strip(), part)]


def main(words: Sequence[str]) -> None:
    """Print a line for each number of each experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    for number in arguments.numbers or experiments():
        started = time.monotonic()
        values, refused = measure(experiments()[number], arguments.seeds)
        seconds = time.monotonic() - started
        print(f"{number}: {arguments.seeds} seeds, {refused} refused, {seconds:.0f} s", flush=True)
        for name, measured in values.items():
            print(f"  {name}: {min(measured):.3g} to {max(measured):.3g}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
