"""Exams: what are all systems of a comparison asked?

Systems that translate answer the same sources and are held against the same references. Language
models read the same text and are measured by how much it surprises them. Each exam is held with
every run of every system, and tells of each system what can be known by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from heedful.comparison.answering import Answers, Watch, answer
from heedful.comparison.judging import judge_systems
from heedful.comparison.results import Judged, Over
from heedful.evaluation.measures import Measure
from heedful.runs import load_translator

MOST_EXAMPLES = 8

Item = TypeVar("Item")


class Result(NamedTuple):
    """What an exam has told of one system."""

    judged: Sequence[Judged]
    num_parameters: int
    sentences_per_second: Over
    tokens_per_second: Over
    outputs: Sequence[str]  # of the first run, for the examples


class Held(NamedTuple):
    """What an exam has told of all systems, and what it asked, as far as it is shown."""

    results: Sequence[Result]
    sources: Sequence[str] = ()
    references: Sequence[str] = ()


class Exam(Protocol):
    """What all systems are asked."""

    @property
    def title(self) -> str:
        """What they are tested on."""
        ...

    @property
    def size(self) -> int:
        """How many sentences there are."""
        ...

    def hold(self, systems: Sequence[Sequence[Path]], *, baseline: int, device: str) -> Held:
        """Ask the runs of each system."""
        ...


@dataclass(frozen=True)
class PairExam:
    """Sources to be answered, and what the answers should be."""

    title: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    measures: Sequence[Measure]
    beam: int | None = None
    watch: Watch = iter

    @property
    def size(self) -> int:
        """How many sentences there are."""
        return len(self.sources)

    def hold(self, systems: Sequence[Sequence[Path]], *, baseline: int, device: str) -> Held:
        """Let the runs of each system translate, by turns, and judge what they said."""
        translators = [load_translator(run, device=device) for runs in systems for run in runs]
        found = answer(translators, self.sources, beam=self.beam, watch=self.watch)
        answers = deal(found, systems)
        said = [[each.outputs for each in runs] for runs in answers]
        judged = [
            judge_systems(measure, said, self.sources, self.references, baseline=baseline)
            for measure in self.measures
        ]
        shown = self._examples([runs[0] for runs in said])
        sizes = [count_parameters(each.model) for each in translators]
        results = [
            self._result(column, size[0], runs, shown)
            for column, size, runs in zip(
                zip(*judged, strict=True), deal(sizes, systems), answers, strict=True
            )
        ]
        asked = [self.sources[row] for row in shown]
        return Held(results, asked, [self.references[row][0] for row in shown])

    def _result(
        self, judged: Sequence[Judged], size: int, runs: Sequence[Answers], shown: Sequence[int]
    ) -> Result:
        return Result(
            judged,
            size,
            Over.of([len(self.sources) / run.seconds for run in runs]),
            Over.of([run.num_tokens / run.seconds for run in runs]),
            [runs[0].outputs[row] for row in shown],
        )

    def _examples(self, said: Sequence[Sequence[str]]) -> list[int]:
        """Choose sentences from all over the test set, those first that systems answered unlike."""
        unlike = [row for row, outputs in enumerate(zip(*said, strict=True)) if len({*outputs}) > 1]
        alike = sorted({*range(self.size)} - {*unlike})
        chosen = spread(unlike, MOST_EXAMPLES)
        return sorted([*chosen, *spread(alike, MOST_EXAMPLES - len(chosen))])


def deal(items: Sequence[Item], systems: Sequence[Sequence[Path]]) -> list[list[Item]]:
    """Part what was found run by run into systems."""
    stream = iter(items)
    return [list(islice(stream, len(runs))) for runs in systems]


def spread(rows: Sequence[int], most: int) -> list[int]:
    """Take at most so many, as evenly as can be."""
    count = min(most, len(rows))
    return [rows[place * len(rows) // count] for place in range(count)]


def count_parameters(model: object) -> int:
    """Count the numbers that a model has learned; shared ones count once."""
    from torch import nn

    assert isinstance(model, nn.Module), type(model)
    return sum(weight.numel() for weight in model.parameters())
