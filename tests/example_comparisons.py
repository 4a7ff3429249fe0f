"""Comparisons of systems whose numbers follow simple formulas."""

from xml.etree import ElementTree

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
BUDGET = "2 minutes"
NAMESPACE = "{http://www.w3.org/2000/svg}"
STEPS = range(100, 501, 100)
GROUPS = (("1-5", 600), ("6-10", 300), ("11-15", 100))


def example_system(index, *, seeds=3, name=None):
    """Return a system with twice the FLOPs and two points of BLEU more than the one before."""
    bleu = [20 + 2 * index + 0.1 * seed for seed in range(seeds)]
    flops = 1e13 * 2**index
    return System(
        name or f"system-{index}",
        f"the one with {index} layers",
        [f"runs/system-{index}-{seed}" for seed in range(seeds)],
        [
            example_score("BLEU", bleu, is_baseline=index == 0),
            example_score("chrF", [2 * each for each in bleu], is_baseline=index == 0),
        ],
        Cost(
            num_parameters=1000 * (index + 1),
            steps=RunStatistics(500.0),
            training_seconds=RunStatistics.from_values([120.0] * seeds),
            training_flops=RunStatistics.from_values(
                [flops * (1 + 0.1 * seed) for seed in range(seeds)]
            ),
            peak_memory=RunStatistics(2.0**28),
            sentences_per_second=RunStatistics(800.0 / (index + 1)),
            tokens_per_second=RunStatistics(8000.0 / (index + 1)),
        ),
        [example_curve(flops, seed) for seed in range(seeds)],
        ["the girl sees the slave", "nothing at all"],
    )


def example_score(name, values, *, is_baseline):
    """Return a score; systems other than the baseline differ significantly."""
    over = RunStatistics.from_values(values)
    return SystemScore(
        MetricScore(name, over.mean, f"signature:{name}"),
        "higher",
        over,
        Interval(over.mean - 1, over.mean + 1, 0.95),
        None if is_baseline else Difference(over.mean - 20, 0.0123),
        [(group, size, over.mean + 5 - size / 100) for group, size in GROUPS],
    )


def example_curve(flops, seed):
    """Return the validations of a run; each seed is slower than the one before."""
    return [
        ValidationPoint(
            step,
            seconds=step * (0.2 + 0.02 * seed),
            flops=flops * step / 500,
            scores={"loss": 500 / step + 0.1 * seed, "bleu": step / 25, "accuracy": step / 1000},
        )
        for step in STEPS
    ]


def example_comparison(count=5, *, seeds=3, systems=None, title="Example", budget=BUDGET):
    """Return a comparison of systems, each better and costlier than the one before."""
    chosen = systems or [example_system(index, seeds=seeds) for index in range(count)]
    return Comparison(
        title=title,
        test_set="test.la",
        num_sentences=1000,
        budget=budget,
        baseline=chosen[0].name,
        systems=chosen,
        sources=["puella servum videt", "nihil"],
        references=["the girl sees the slave", "nothing"],
        environment={"heedful": "0.0", "device": "cpu"},
        command="heedful compare runs/a runs/b",
    )


def bare_system(system):
    """Return a system without its optional parts."""
    scores = [each._replace(interval=None, difference=None, by_length=()) for each in system.scores]
    cost = system.cost._replace(training_seconds=None, training_flops=None, peak_memory=None)
    return system._replace(summary="", scores=scores, cost=cost, curves=[], outputs=[])


def groups(figure):
    """Return the named groups of a plot."""
    nodes = ElementTree.fromstring(figure.svg).iter(f"{NAMESPACE}g")
    return {node.get("data-name"): node for node in nodes if node.get("data-name") is not None}
