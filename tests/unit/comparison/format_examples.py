"""Comparisons with numbers for tests of the output formats."""

from heedful.comparison.results import (
    Comparison,
    Cost,
    RunStatistics,
    System,
    SystemScore,
    ValidationPoint,
)
from heedful.evaluation.base import MetricScore
from heedful.evaluation.significance import Difference, Interval


def score(value, *, name="BLEU", better="higher", deviation=None, p=None):
    return SystemScore(
        MetricScore(name, value, "tok:13a"),
        better,
        RunStatistics(value, deviation),
        Interval(value - 1, value + 1, 0.95),
        None if p is None else Difference(value - 20, p),
        [("1-5", 3, value)],
    )


def cost(*, parameters=1_500_000, seconds=120.0, flops=2.3e14, memory=float(1 << 29), speed=10.0):
    return Cost(
        parameters,
        RunStatistics(500),
        None if seconds is None else RunStatistics(seconds),
        None if flops is None else RunStatistics(flops),
        None if memory is None else RunStatistics(memory),
        RunStatistics(speed),
        RunStatistics(speed * 11),
    )


def system(name, *scores, training_costs=None, num_runs=1):
    curve = [
        ValidationPoint(10, 1.5, 1e9, {"loss": 2.5}),
        ValidationPoint(20, None, None, {"loss": 1.5}),
    ]
    runs = [f"runs/{name}-{seed}" for seed in range(num_runs)]
    return System(
        name, "a system", runs, scores, training_costs or cost(), [curve] * num_runs, ["An output"]
    )


def comparison(*systems, failures=(), budget=None):
    return Comparison(
        title="systems compared",
        test_set="3 pairs of a and b",
        num_sentences=3,
        budget=budget,
        baseline=systems[0].name,
        systems=systems,
        sources=["A source"],
        references=["A reference"],
        environment={"torch": "2"},
        command="heedful compare",
        failures=failures,
    )
