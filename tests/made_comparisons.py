"""Comparisons of made-up systems, by formulas that a test can follow."""

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

HOSTILE = "</script><script>window.harmed=1</script><img src=x onerror=window.harmed=1>"
MADE_BUDGET = "2 minutes"
STEPS = range(100, 501, 100)
GROUPS = (("1-5", 600), ("6-10", 300), ("11-15", 100))


def made_system(place, *, seeds=3, name=None):
    """A system that doubles the operations of the one before it for two points of BLEU."""
    bleu = [20 + 2 * place + 0.1 * seed for seed in range(seeds)]
    operations = 1e13 * 2**place
    return System(
        name or f"system-{place}",
        f"the one with {place} layers",
        [f"runs/system-{place}-{seed}" for seed in range(seeds)],
        [
            made_judged("BLEU", bleu, is_baseline=place == 0),
            made_judged("chrF", [2 * each for each in bleu], is_baseline=place == 0),
        ],
        Cost(
            num_parameters=1000 * (place + 1),
            steps=RunStatistics(500.0),
            training_seconds=RunStatistics.from_values([120.0] * seeds),
            training_flops=RunStatistics.from_values(
                [operations * (1 + 0.1 * seed) for seed in range(seeds)]
            ),
            peak_memory=RunStatistics(2.0**28),
            sentences_per_second=RunStatistics(800.0 / (place + 1)),
            tokens_per_second=RunStatistics(8000.0 / (place + 1)),
        ),
        [made_curve(operations, seed) for seed in range(seeds)],
        ["the girl sees the slave", "nothing at all"],
    )


def made_judged(name, values, *, is_baseline):
    """The first system is the baseline; others differ from it beyond chance."""
    over = RunStatistics.from_values(values)
    return SystemScore(
        MetricScore(name, over.mean, f"made:{name}"),
        "higher",
        over,
        Interval(over.mean - 1, over.mean + 1, 0.95),
        None if is_baseline else Difference(over.mean - 20, 0.0123),
        [(group, size, over.mean + 5 - size / 100) for group, size in GROUPS],
    )


def made_curve(operations, seed):
    """A training of which every seed is a little slower than the one before."""
    return [
        ValidationPoint(
            step,
            seconds=step * (0.2 + 0.02 * seed),
            flops=operations * step / 500,
            scores={"loss": 500 / step + 0.1 * seed, "bleu": step / 25, "accuracy": step / 1000},
        )
        for step in STEPS
    ]


def made_comparison(count=5, *, seeds=3, systems=None, title="Made up", budget=MADE_BUDGET):
    """Systems side by side, each better and costlier than the one before."""
    found = systems or [made_system(place, seeds=seeds) for place in range(count)]
    return Comparison(
        title=title,
        test_set="test.la",
        num_sentences=1000,
        budget=budget,
        baseline=found[0].name,
        systems=found,
        sources=["puella servum videt", "nihil"],
        references=["the girl sees the slave", "nothing"],
        environment={"heedful": "0.0", "device": "cpu"},
        command="heedful compare runs/a runs/b",
    )


def bare_system(system):
    """The same system, of which nothing is known that may be missing."""
    judged = [each._replace(interval=None, difference=None, by_length=()) for each in system.scores]
    cost = system.cost._replace(training_seconds=None, training_flops=None, peak_memory=None)
    return system._replace(summary="", scores=judged, cost=cost, curves=[], outputs=[])
