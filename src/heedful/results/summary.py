"""The summary of a result: means over seeds with intervals, verdicts, and claims with their tests.

Intervals are those of the mean over seeds (Student's t) and, where sentences are scored, of a
bootstrap over seeds and sentences at once. Invariants: one seed has no interval over seeds; a
miniature has no verdict; p-values of the claims of a result are adjusted together (Holm 1979).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from operator import ge, gt, le, lt
from statistics import mean, stdev
from typing import Any

import numpy as np

from heedful.data.text_files import read_lines
from heedful.errors import DataError
from heedful.evaluation.base import Array, Metric, as_multi_reference
from heedful.evaluation.registry import ALL_METRICS
from heedful.evaluation.significance import (
    NUM_BOOTSTRAP_SAMPLES,
    SEED,
    SIGNIFICANCE_LEVEL,
    compare_systems,
    resample_sums,
)
from heedful.recipes import Recipe
from heedful.results.config import (
    ArithmeticCellConfig,
    ClaimConfig,
    PublishedConfig,
    ResultConfig,
    names_of,
)
from heedful.results.runs import Plan, SystemTrial, read_test

Record = Mapping[str, Any]
Summary = dict[str, Any]
"""What pages show, as it is in JSON."""
_T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, by df
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, ">": gt, "<=": le, ">=": ge}
_FACTS = ("device", "torch", "heedful", "commit", "date")


class Scores:
    """The scores of all systems of a plan in one metric."""

    def __init__(self, plan: Plan, column: str, records: Sequence[Record]) -> None:
        self.plan, self.column = plan, column
        self.config = plan.result.metrics[column]
        self.by_system: dict[str, list[Record]] = {}
        for record in records:
            self.by_system.setdefault(record["system"], []).append(record)

    @cached_property
    def metric(self) -> Metric | None:
        """The metric of texts, if it is one."""
        name, recipe = self.config.metric or self.column, self.recipe
        registry = recipe.task.evaluation.test_metrics if recipe else {}
        return registry.get(name) or ALL_METRICS.get(name)

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe of a system, for the task and the test set."""
        return first_recipe(self.plan)

    @cached_property
    def references(self) -> list[Sequence[str]]:
        """The references of the test set."""
        if self.config.references is not None:
            lines = read_lines(self.plan.fill_in(self.config.references))
            return as_multi_reference(list(lines)[: self.plan.result.max_examples])
        return list(self._test[1])

    @cached_property
    def _test(self) -> tuple[list[Any], list[tuple[str, ...]]]:
        recipe, test = self.recipe, self.config.test
        return read_test(self.plan.result, recipe, test) if recipe else ([], [])

    @cached_property
    def statistics(self) -> dict[str, list[Array]]:
        """Sentence statistics of each run by system; none for scores that are not of sentences."""
        metric = self.metric
        if metric is None:
            return {}
        return {
            system: [self._statistics(metric, record) for record in records]
            for system, records in self.by_system.items()
            if all(record["lines"] for record in records)
        }

    def _statistics(self, metric: Metric, record: Record) -> Array:
        lines = record["lines"].get(self.column, record["lines"].get("texts", []))
        lines = lines[: self.plan.result.max_examples]
        if self.config.outputs == "moses lower case":
            lines = moses_lowercase(lines, self.config.references or "")
        rows = metric.sentence_statistics(lines, self.references)
        if self.config.words is not None:
            low, high = self.config.words
            rows = rows[[low <= len(source.split()) <= high for source in self._test[0]]]
        return rows

    @property
    def direction(self) -> str:
        """Whether lower or higher is better."""
        if self.metric is None:
            return "lower"
        is_higher = (self.metric.direction == "higher") != self.config.complement
        return "higher" if is_higher else "lower"

    @property
    def signature(self) -> str:
        """How texts are scored; empty for other scores."""
        if self.metric is None or not self.statistics:
            return ""
        text = f"{self.metric.name}|{self.metric.signature(self.references)}"
        if self.config.words is not None:
            text += f"|words:{self.config.words[0]}-{self.config.words[1]}"
        text += "" if self.config.outputs == "as they are" else f"|outputs:{self.config.outputs}"
        return f"100 - {text}" if self.config.complement else text

    def _shown(self, value: Any) -> Any:
        return 100 - value if self.config.complement else value

    def values(self, system: str) -> list[float]:
        """Return the score of each run."""
        if system in self.statistics and self.metric is not None:
            rows = self.statistics[system]
            return [float(self._shown(self.metric.compute(row.sum(axis=0)))) for row in rows]
        name = self.config.metric or self.column
        records = self.by_system.get(system, [])
        scores = (r["scores"].get(self.column, r["scores"].get(name)) for r in records)
        return [float(self._shown(value)) for value in scores if value is not None]

    def bootstrap(self, system: str) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean over seeds and sentences, both resampled."""
        rows, metric = self.statistics.get(system, []), self.metric
        if not rows or metric is None:
            return None
        generator, joined = np.random.default_rng(SEED), np.concatenate(rows, axis=1)
        means = []
        for sums in resample_sums(joined, NUM_BOOTSTRAP_SAMPLES, SEED):
            scores = metric.compute(sums.reshape(len(sums), len(rows), -1))
            drawn = generator.integers(len(rows), size=scores.shape)
            means.append(np.take_along_axis(scores, drawn, axis=1).mean(axis=1))
        low, high = np.quantile(np.concatenate(means), (0.025, 0.975), method="inverted_cdf")
        ends = sorted((float(self._shown(low)), float(self._shown(high))))
        return ends[0], ends[1]

    def p_value(self, left: str, right: str) -> float | None:
        """Return p of the paired test, in which the outputs of all seeds are swapped together."""
        pair = self.statistics.get(left), self.statistics.get(right)
        if self.metric is None or not (pair[0] and pair[1]):
            return None
        count = math.lcm(len(pair[0]), len(pair[1]))
        one, other = (count // len(rows) * sum(rows[1:], rows[0]) for rows in pair if rows)
        return compare_systems(one, other, self.metric.compute).p_value


def moses_lowercase(lines: Sequence[str], references: str) -> list[str]:
    """Return lines in lower case, with normalized punctuation and Moses tokens."""
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        hint = "pip install sacremoses"
        raise DataError("metrics", "Moses tokens need the package sacremoses", hint) from None
    language = references.removesuffix(".gz").rsplit(".", 1)[-1]
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True) for line in lines
    ]


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean; None for one value."""
    if len(values) < 2:
        return None
    half = _T_QUANTILES[: len(values) - 1][-1] * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def summarize(plan: Plan, records: Sequence[Record], *, is_miniature: bool) -> Summary:
    """Return the summary of a result."""
    result = plan.result
    scores = {column: Scores(plan, column, records) for column in result.metrics}
    systems = {name: _system(name, scores, records) for name in result.systems}
    for name, config in result.systems.items():  # what continues a system has the costs of both
        first = systems.get(result.systems[config.ensemble_of or name].after or "", {})
        members = len(result.seeds) if config.ensemble_of else 1
        for field in ("flops", "minutes") if first and systems[name]["runs"] else ():
            earlier = members * (first[field] or 0)
            systems[name][field] = (systems[name][field] or 0) + earlier or None
    summary: Summary = {
        "name": plan.name,
        "budget": ", ".join(sorted({record["budget"] for record in records})),
        "miniature": is_miniature,
        "seeds": sorted({record["seed"] for record in records}),
        "systems": systems,
        "directions": {column: table.direction for column, table in scores.items()},
        "signatures": {column: table.signature for column, table in scores.items()},
        "cells": [{**cell.model_dump(), **check_cell(cell)} for cell in result.cells],
        **_curves(plan, records, systems),
    }
    for fact in _FACTS:
        summary[fact] = ", ".join(sorted({str(r[fact]) for r in records if r.get(fact)}))
    summary["date"] = summary["date"].split(", ")[-1][:10]
    summary["published"] = [_published(row, result, summary) for row in result.published]
    summary["claims"] = _claims(result, scores, summary) if records else []
    return summary


def _curves(plan: Plan, records: Sequence[Record], systems: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dev scores of the first run of each system against FLOPs."""
    curves: dict[str, list[tuple[float, float]]] = {}
    metric = recipe.training.metric_for_best_model if (recipe := first_recipe(plan)) else ""
    for record in records:
        config = plan.result.systems[record["system"]]
        before = systems.get(config.after or "", {}).get("flops") or 0
        points = [
            (point["flops"] + before, point["scores"][metric])
            for point in record["curve"]
            if point["flops"] and metric in point["scores"]
        ]
        if points and not config.ensemble_of:
            curves.setdefault(record["system"], points)
    return {"dev_metric": metric, "curves": curves}


def first_recipe(plan: Plan) -> Recipe | None:
    """Return the recipe of the first system that has one."""
    names = [name for name, system in plan.result.systems.items() if system.recipe]
    return SystemTrial(plan, names[0], plan.result.seeds[0]).recipe() if names else None


def _system(name: str, scores: Mapping[str, Scores], records: Sequence[Record]) -> dict[str, Any]:
    records_of_system = [record for record in records if record["system"] == name]
    metrics = {}
    for column, table in scores.items():
        if values := table.values(name):
            metrics[column] = {
                "mean": mean(values),
                "sd": stdev(values) if len(values) > 1 else None,
                "values": values,
                "interval": t_interval(values),
                "bootstrap": table.bootstrap(name),
            }

    def cost(field: str) -> float | None:
        numbers = [record.get(field) for record in records_of_system]
        known = [number for number in numbers if number]
        return mean(known) if known else None

    return {
        "metrics": metrics,
        "runs": len(records_of_system),
        "minutes": (cost("seconds") or 0) / 60 or None,
        **{field: cost(field) for field in ("flops", "steps", "parameters")},
    }


def check_cell(cell: ArithmeticCellConfig) -> dict[str, Any]:
    """Return the product, and whether it is the printed number when rounded to two digits."""
    product = math.prod(cell.factors)
    return {"product": product, "agrees": float(f"{product:.1e}") == cell.printed}


def _published(row: PublishedConfig, result: ResultConfig, summary: Summary) -> dict[str, Any]:
    """Return a published row beside ours, with the difference and the verdict."""
    values = row.model_dump()
    system = summary["systems"].get(row.beside or "", {"metrics": {}})
    first = next(iter(result.metrics), "")
    ours = system["metrics"].get(first)
    if first not in row.values or ours is None:
        return {**values, "difference": None, "verdict": ""}
    published, direction = row.values[first], summary["directions"][first]
    difference = ours["mean"] - published
    if summary["miniature"]:
        verdict = "miniature: no verdict"
    else:
        ends = [*(ours["interval"] or ()), *(ours["bootstrap"] or ()), ours["mean"]]
        low, high = min(ends) - result.tolerance, max(ends) + result.tolerance
        is_better = (difference > 0) == (direction == "higher")
        verdict = "better" if is_better else "worse"
        if low <= published <= high:
            verdict = "reproduced" if abs(difference) <= result.tolerance else "tie"
        if row.comparable != "same":
            words = {
                "better": "beyond it",
                "worse": "below it",
                "reproduced": "equal",
                "tie": "tie",
            }
            verdict = f"{row.comparable}: {words[verdict]}"
        if len(ours["values"]) == 1 and len(result.seeds) > 1:
            verdict += ", one seed"
    return {**values, "difference": difference, "verdict": verdict}


# ----- claims -----


def _claims(
    result: ResultConfig, scores: Mapping[str, Scores], summary: Summary
) -> list[dict[str, Any]]:
    """Return each claim with p after Holm's correction, and whether it holds."""
    rows = [_claim(claim, result, scores, summary) for claim in result.claims]
    tested = sorted((row for row in rows if row["p"] is not None), key=lambda row: row["p"])
    largest = 0.0
    for index, row in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - index) * row["p"]))
        row["p"] = largest
        if largest >= SIGNIFICANCE_LEVEL:
            row["holds"] = False
    return rows


def _claim(
    claim: ClaimConfig, result: ResultConfig, scores: Mapping[str, Scores], summary: Summary
) -> dict[str, Any]:
    column = claim.metric or next(iter(result.metrics))
    relation, score = _RELATIONS[claim.op], scores[column]
    sign = 1 if claim.op.startswith(">") else -1
    outcomes: list[bool] = []
    p_values: list[float] = []
    differences: list[float] = []
    rights: Sequence[Any] = names_of(claim.right) or [claim.right]
    for left, right in product(names_of(claim.left), rights):
        ours = score.values(left)
        others = score.values(right) if isinstance(right, str) else [right]
        if not ours or not others:
            return {**claim.model_dump(), "holds": None, "p": None, "difference": None}
        difference = mean(ours) - mean(others)
        differences.append(difference)
        outcomes.append(relation(mean(ours), mean(others)))
        outcomes.append(sign * difference >= claim.margin or not claim.margin)
        if isinstance(right, str):
            if len(ours) == len(others):
                outcomes += [relation(one, other) for one, other in zip(ours, others, strict=True)]
            p = score.p_value(left, right)
            p_values += [] if p is None else [p]
    return {
        **claim.model_dump(),
        "holds": all(outcomes),
        "p": max(p_values, default=None),
        "difference": min(differences, key=abs),
    }


def failed_claims(summary: Summary) -> Iterator[str]:
    """Yield the claims that are asserted and do not hold."""
    for claim in summary["claims"]:
        if claim["asserted"] and claim["holds"] is False and not summary["miniature"]:
            yield claim["text"]
