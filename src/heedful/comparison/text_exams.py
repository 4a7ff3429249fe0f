"""Exams of running text: how much does the same text surprise each language model?

Each model reads the text as `heedful evaluate` lets it, in turns with the others, after a few lines
that are not counted. Perplexity per token tells models apart only where they cut text alike; per
word or per character it always does, so those come first. Masked models are asked for hidden
tokens: they are compared only where the same ones were hidden.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.comparison.exams import Held, Result, count_parameters, deal
from heedful.comparison.results import Judged, Over
from heedful.data.running import run_together
from heedful.errors import RunError
from heedful.evaluation.measures import Direction, Metric
from heedful.runs import load
from heedful.writer import MaskedWriter, Writer

SHOWN: Mapping[str, Direction] = {
    "perplexity per word": "lower",
    "bits per character": "lower",
    "perplexity per token": "lower",
    "per cent right": "higher",
}
"""What is told of a model, if it can be, by the name that `heedful evaluate` has for it."""
ROUNDS = 2
WARM_UP = 16  # lines


@dataclass(frozen=True)
class TextExam:
    """Running text to be read."""

    title: str
    lines: Sequence[str]

    @property
    def size(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def hold(self, systems: Sequence[Sequence[Path]], *, baseline: int, device: str) -> Held:
        """Let the runs of each system read, by turns."""
        del baseline  # what is found of a text has no sentences to be exchanged
        folders = [run for runs in systems for run in runs]
        writers = [_load(run, device) for run in folders]
        lengths = self._cut(folders, writers)
        metrics, seconds = self._read(writers)
        found = [
            _Read(writer, told, ROUNDS * self.size / taken, ROUNDS * length / taken)
            for writer, told, taken, length in zip(writers, metrics, seconds, lengths, strict=True)
        ]
        return Held([_result(runs) for runs in deal(found, systems)])

    def _read(
        self, writers: Sequence[Writer | MaskedWriter]
    ) -> tuple[list[list[Metric]], list[float]]:
        """Let all read the text, by turns, and say how it surprised them and how long it took."""
        for writer in writers:
            writer.measure(self.lines[:WARM_UP])
        metrics, seconds = list[list[Metric]](), [0.0] * len(writers)
        for _ in range(ROUNDS):
            metrics = []
            for place, writer in enumerate(writers):
                began = time.perf_counter()
                metrics.append(writer.measure(self.lines))
                seconds[place] += time.perf_counter() - began
        return metrics, seconds

    def _cut(self, folders: Sequence[Path], writers: Sequence[Writer | MaskedWriter]) -> list[int]:
        """Count the tokens that each run makes of the text."""
        rows = [run_together(self.lines, writer.tokenizer) for writer in writers]
        for folder, writer, row in zip(folders, writers, rows, strict=True):
            is_alike = _hiding(writer) == _hiding(writers[0]) and np.array_equal(row, rows[0])
            if isinstance(writer, MaskedWriter) and not is_alike:
                raise _unlike(folder, folders[0])
        return [len(row) - 1 for row in rows]  # the one before the first line is not read


class _Read(NamedTuple):
    writer: Writer | MaskedWriter
    metrics: Sequence[Metric]
    lines_per_second: float
    tokens_per_second: float


def _hiding(writer: Writer | MaskedWriter) -> tuple[object, ...]:
    """What decides which tokens of a row are hidden."""
    masking = getattr(writer, "masking", None)
    return masking, writer.streams, len(writer.tokenizer)


def _load(run: Path, device: str) -> Writer | MaskedWriter:
    loaded = load(run, device=device)
    assert isinstance(loaded, Writer | MaskedWriter), f"{run} translates"
    return loaded


def _unlike(folder: Path, first: Path) -> RunError:
    return RunError(
        str(folder),
        f"other tokens would be hidden from this run than from {first}",
        "compare masked language models with the same `text`, `data.streams` and `model.masking`",
    )


def _result(runs: Sequence[_Read]) -> Result:
    values = [{metric.name: metric for metric in run.metrics} for run in runs]
    judged = list[Judged]()
    for name, better in SHOWN.items():
        if name in values[0]:
            over = Over.of([each[name].value for each in values])
            judged.append(Judged(values[0][name]._replace(value=over.mean), better, over))
    return Result(
        judged,
        count_parameters(runs[0].writer.model),
        Over.of([run.lines_per_second for run in runs]),
        Over.of([run.tokens_per_second for run in runs]),
        outputs=(),
    )
