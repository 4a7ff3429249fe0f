"""Answers: what is there to be measured, by each metric, of a file or of a run?

A file is what it is: its lines are outputs, or whatever else a metric measures. A run is asked:
most metrics measure its outputs, others what it tells beside them. Law: a run is asked once for its
outputs, and once about the references, and only if a metric wants to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from heedful.cli.options import watched
from heedful.cli.references import ReferenceSet, lines_like
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.evaluation.measures import Measure
    from heedful.translator import Request, Translation, Translator


class Answers(Protocol):
    """What a system answered, as one line of text for each sentence."""

    @property
    def texts(self) -> Sequence[str]:
        """Its outputs."""
        ...

    def lines(self, measure: Measure) -> Sequence[str]:
        """What a metric measures."""
        ...


class Written(NamedTuple):
    """The lines of a file."""

    texts: Sequence[str]

    def lines(self, measure: Measure) -> Sequence[str]:
        """The same for every metric."""
        del measure
        return self.texts


class Said(NamedTuple):
    """What was said of one sentence: an output, or what was thought of a reference."""

    text: str
    log_probs: str
    entropies: str
    links: str


@dataclass
class Asked:
    """A run, and what it is asked about."""

    translator: Translator
    test: ReferenceSet
    beam: int | None = None

    def lines(self, measure: Measure) -> Sequence[str]:
        """Outputs, how widely they looked, how likely references are, or which words they link."""
        from heedful.evaluation.metrics import MEASURES, TOLD_BESIDE

        if measure is MEASURES["aer"]:
            return _refusing_blindness("aer", [said.links for said in self._references])
        if measure is TOLD_BESIDE["attention-entropy"]:
            found = [said.entropies for said in self._outputs]
            return _refusing_blindness("attention-entropy", found)
        if measure in TOLD_BESIDE.values():
            return [said.log_probs for said in self._references]
        return self.texts

    @property
    def texts(self) -> Sequence[str]:
        """What it makes of the sources."""
        return [said.text for said in self._outputs]

    @cached_property
    def _outputs(self) -> list[Said]:
        return self._ask(self.test.sources or [], beam=self.beam)

    @cached_property
    def _references(self) -> list[Said]:
        from heedful.translator import Request

        pairs = zip(self.test.sources or [], self.test.references, strict=True)
        return self._ask([Request(source, target=choices[0]) for source, choices in pairs])

    def _ask(self, texts: Sequence[str | Request], *, beam: int | None = None) -> list[Said]:
        stream: Iterable[Translation] = self.translator.stream(texts, beam=beam)
        return [_note(each) for each in watched(stream, total=len(texts))]


def _note(told: Translation) -> Said:
    """Keep what metrics measure; weights would take far more room."""
    from heedful.decoding.alignments import Argmax, moses, word_alignment
    from heedful.evaluation.surprises import entropies, write_numbers

    return Said(
        told.text,
        write_numbers(told.log_probs),
        write_numbers(entropies(told.weights)),
        moses(word_alignment(told, Argmax())),
    )


def _refusing_blindness(name: str, lines: list[str]) -> list[str]:
    if not any(lines):
        raise ConfigError(
            "--metrics",
            f"{name} is told by attention, and this run looks nowhere",
            "leave it out, or measure a run that looks at its sources",
        )
    return lines


def answers_of(baseline: str, test: ReferenceSet, *, beam: int | None, device: str) -> Answers:
    """Read the lines of a file, or get a run ready to be asked."""
    if not Path(baseline).is_dir():
        return Written(lines_like(baseline, test))
    if test.sources is None:
        raise ConfigError(
            "--baseline", "a run needs texts to translate", "name them, too: --source FILE"
        )
    from heedful.runs import load_translator

    return Asked(load_translator(baseline, device=device), test, beam)
