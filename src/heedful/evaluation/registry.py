"""The metrics by name.

Every metric adds up from sentences, so that confidence intervals and significance tests exist for
all of them (`significance`). A value comes with its signature: without it, scores of two papers
cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from heedful.errors import check, choices_hint, did_you_mean
from heedful.evaluation.alignment_error_rate import AlignmentErrorRate
from heedful.evaluation.base import Metric, MetricScore, References, compute_score
from heedful.evaluation.per_token_metrics import (
    ATTENTION_ENTROPY,
    PERPLEXITY,
    PERPLEXITY_PER_WORD,
)
from heedful.evaluation.span_metrics import SpanF1
from heedful.evaluation.text_metrics import (
    BLEU,
    CHARACTER_ERROR_RATE,
    CHRF,
    MULTI_BLEU,
    POSITION_INDEPENDENT_ERROR_RATE,
    ROUGE_1,
    ROUGE_2,
    ROUGE_L,
    TER,
    TOKENIZED_BLEU,
    WORD_ERROR_RATE,
    ExactMatch,
    TokenAccuracy,
)

METRICS: Mapping[str, Metric] = {
    "exact-match": ExactMatch(),
    "bleu": BLEU,
    "chrf": CHRF,
    "ter": TER,
    "tokenized-bleu": TOKENIZED_BLEU,
    "multi-bleu": MULTI_BLEU,
    "rouge-1": ROUGE_1,
    "rouge-2": ROUGE_2,
    "rouge-l": ROUGE_L,
    "token-accuracy": TokenAccuracy(),
    "wer": WORD_ERROR_RATE,
    "per": POSITION_INDEPENDENT_ERROR_RATE,
    "cer": CHARACTER_ERROR_RATE,
    "span-f1": SpanF1(),
    "span-f1-iob2": SpanF1("span F1 (IOB2)", scheme="iob2"),
    "aer": AlignmentErrorRate(),
}
"""Metrics that compare outputs with references."""

MODEL_METRICS: Mapping[str, Metric] = {
    "perplexity": PERPLEXITY,
    "perplexity-per-word": PERPLEXITY_PER_WORD,
    "attention-entropy": ATTENTION_ENTROPY,
}
"""Metrics of numbers that a model returns beside its outputs."""

DEFAULT_METRICS = ("bleu", "chrf", "exact-match")


class MetricSpec(NamedTuple):
    """A validation metric of a task; the only place that says its label and direction."""

    label: str
    higher_is_better: bool
    metric: Metric | None = None  # of predictions; None if it comes from `Task.metric_sums`
    unit: str = ""

    @classmethod
    def from_metric(cls, metric: Metric) -> MetricSpec:
        """Describe a metric of predictions."""
        label = metric.name[0].upper() + metric.name[1:] if " " in metric.name else metric.name
        return cls(label, metric.direction == "higher", metric)


LOSS = MetricSpec("Loss", higher_is_better=False)
ACCURACY = MetricSpec("Accuracy", higher_is_better=True, unit="fraction")
VALIDATION_METRICS: Mapping[str, MetricSpec] = {
    "loss": LOSS,
    "accuracy": ACCURACY,
    **{
        name: MetricSpec.from_metric(metric)
        for name, metric in METRICS.items()
        if name != "aer"  # needs word alignments, not outputs
    },
}
"""What validations may compute, under the names of metrics.jsonl."""


def exact_match(outputs: Sequence[str], references: References) -> MetricScore:
    """Return the percentage of outputs equal to a reference, character by character."""
    return compute_score(METRICS["exact-match"], outputs, references)


def bleu(outputs: Sequence[str], references: References) -> MetricScore:
    """Return sacreBLEU's BLEU (Papineni et al. 2002)."""
    return compute_score(BLEU, outputs, references)


def chrf(outputs: Sequence[str], references: References) -> MetricScore:
    """Return sacreBLEU's chrF, the character n-gram F-score (Popovic 2015)."""
    return compute_score(CHRF, outputs, references)


def ter(outputs: Sequence[str], references: References) -> MetricScore:
    """Return sacreBLEU's translation edit rate (Snover et al. 2006); lower is better."""
    return compute_score(TER, outputs, references)


def compute_metrics(
    outputs: Sequence[str], references: References, names: Iterable[str] = DEFAULT_METRICS
) -> list[MetricScore]:
    """Score outputs by each of the named metrics."""
    return [compute_score(metric, outputs, references) for metric in get_metrics(names)]


def get_metrics(
    names: Iterable[str], *, location: str = "metrics", registry: Mapping[str, Metric] = METRICS
) -> list[Metric]:
    """Return the metrics of these names; `location` is the setting that an error names."""
    metrics = []
    for name in names:
        check(
            name in registry,
            location,
            f"no metric is called {name!r}{did_you_mean(name, registry)}",
            choices_hint(registry),
        )
        metrics.append(registry[name])
    return metrics
