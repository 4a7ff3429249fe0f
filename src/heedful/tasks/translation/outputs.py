"""The outputs of a translation run as metrics score them.

Most metrics score output texts; perplexity scores log-probabilities of the references, AER their
word alignments, attention entropy the weights of the outputs. Invariant: sources are decoded at
most once and references scored at most once, and only if a metric needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from heedful.decoding.requests import Request
from heedful.decoding.translation import Translation
from heedful.decoding.word_alignment import ArgmaxAligner, format_pharaoh, word_alignment
from heedful.errors import check
from heedful.evaluation.base import Metric
from heedful.evaluation.per_token_metrics import attention_entropies, format_numbers
from heedful.evaluation.registry import METRICS, MODEL_METRICS
from heedful.tasks.task import ProgressWrapper
from heedful.tasks.translation.translator import Translator


class OutputRecord(NamedTuple):
    """What metrics need of a translation; its weights would take far more memory."""

    text: str
    log_probs: str
    entropies: str
    alignment: str

    @classmethod
    def from_translation(cls, translation: Translation) -> OutputRecord:
        """Keep the text and format the rest as lines that metrics parse."""
        return cls(
            translation.text,
            format_numbers(translation.log_probs),
            format_numbers(attention_entropies(translation.weights)),
            format_pharaoh(word_alignment(translation, ArgmaxAligner())),
        )


class TranslationOutputs:
    """The outputs of a translator for a test set."""

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[Sequence[str]],
        with_progress: ProgressWrapper,
    ) -> None:
        self.translator = translator
        self.sources = sources
        self.references = references
        self.with_progress = with_progress

    @property
    def texts(self) -> Sequence[str]:
        """The translations of the sources."""
        return [record.text for record in self._outputs]

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """Return output texts, or what else a metric scores."""
        if metric is METRICS["aer"]:
            return _check_has_attention("aer", [record.alignment for record in self._scored])
        if metric is MODEL_METRICS["attention-entropy"]:
            entropies = [record.entropies for record in self._outputs]
            return _check_has_attention("attention-entropy", entropies)
        if metric in MODEL_METRICS.values():
            return [record.log_probs for record in self._scored]
        return self.texts

    @cached_property
    def _outputs(self) -> list[OutputRecord]:
        return self._decode(self.sources)

    @cached_property
    def _scored(self) -> list[OutputRecord]:
        """The first reference of every source, scored by the model."""
        pairs = zip(self.sources, self.references, strict=True)
        return self._decode([Request(source, target=choices[0]) for source, choices in pairs])

    def _decode(self, requests: Sequence[str | Request]) -> list[OutputRecord]:
        stream: Iterable[Translation] = self.translator.predict(requests)
        translations = self.with_progress(stream, len(requests))
        return [OutputRecord.from_translation(translation) for translation in translations]


def _check_has_attention(name: str, lines: list[str]) -> list[str]:
    check(
        any(lines),
        "--metrics",
        f"{name} needs attention weights, and this model has no attention",
        "leave it out, or evaluate a run with attention",
    )
    return lines
