"""The metrics by name.

A value comes with its signature: without it, scores of two papers cannot be compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from heedful.errors import check, check_choice
from heedful.evaluation import annotation_metrics, caption_metrics, text_metrics
from heedful.evaluation.annotation_metrics import SpanF1
from heedful.evaluation.base import Metric, MetricScore, ReferenceLists, References, compute_score

ALIGNMENT_METRICS: Mapping[str, Metric] = {
    "aer": annotation_metrics.AlignmentErrorRate(),
    "alignment-precision": annotation_metrics.AlignmentPrecision(),
    "alignment-recall": annotation_metrics.AlignmentRecall(),
}
"""Metrics that compare word alignments with gold alignments."""

CAPTION_METRICS: Mapping[str, Metric] = {
    **{f"bleu-{metric.order}": metric for metric in caption_metrics.CAPTION_BLEU},
    "caption-rouge-l": caption_metrics.CaptionRougeL(),
    "cider-d": caption_metrics.CiderDMetric(),
}
"""Metrics of captions as papers on captions compute them."""

METRICS: Mapping[str, Metric] = {
    "exact-match": text_metrics.ExactMatch(),
    "bleu": text_metrics.BLEU,
    "chrf": text_metrics.CHRF,
    "ter": text_metrics.TER,
    "tokenized-bleu": text_metrics.TOKENIZED_BLEU,
    "multi-bleu": text_metrics.MULTI_BLEU,
    "rouge-1": text_metrics.ROUGE_1,
    "rouge-2": text_metrics.ROUGE_2,
    "rouge-l": text_metrics.ROUGE_L,
    "token-accuracy": text_metrics.TokenAccuracy(),
    "wer": text_metrics.WORD_ERROR_RATE,
    "per": text_metrics.POSITION_INDEPENDENT_ERROR_RATE,
    "cer": text_metrics.CHARACTER_ERROR_RATE,
    "span-f1": SpanF1(),
    "span-f1-iob2": SpanF1("span F1 (IOB2)", scheme="iob2"),
    **CAPTION_METRICS,
    **ALIGNMENT_METRICS,
}
"""Metrics that compare outputs with references."""

MODEL_METRICS: Mapping[str, Metric] = {
    "perplexity": annotation_metrics.PERPLEXITY,
    "perplexity-per-word": annotation_metrics.PERPLEXITY_PER_WORD,
    "attention-entropy": annotation_metrics.ATTENTION_ENTROPY,
}
"""Metrics of numbers that a model returns beside its outputs."""

MAX_NBEST = 10
NBEST_METRICS: Mapping[str, Metric] = {
    f"exact-match@{count}": text_metrics.NBestExactMatch(f"exact match @{count}", num_outputs=count)
    for count in (3, 5, MAX_NBEST)
}
"""Metrics of several outputs per text."""

SOURCE_METRICS: Mapping[str, Metric] = {
    **{f"novelty-{n}": text_metrics.NgramNovelty(f"novel {n}-grams", n) for n in range(1, 5)},
    "fragment-coverage": text_metrics.FRAGMENT_COVERAGE,
    "fragment-density": text_metrics.FRAGMENT_DENSITY,
    "longest-fragment": text_metrics.MAX_FRAGMENT_LENGTH,
}
"""Metrics that compare outputs with their sources."""

ALL_METRICS: Mapping[str, Metric] = {**METRICS, **SOURCE_METRICS, **MODEL_METRICS, **NBEST_METRICS}

DEFAULT_METRICS = ("bleu", "chrf", "exact-match")


class MetricSpec(NamedTuple):
    """A validation metric of a task; the only place with its label and direction."""

    label: str
    higher_is_better: bool
    metric: Metric | None = None  # of predictions; None if it comes from `Evaluation.batch_sums`
    unit: str = ""

    @classmethod
    def from_metric(cls, metric: Metric) -> Self:
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
        if name not in ALIGNMENT_METRICS
    },
}
"""What validations may compute, by name in metrics.jsonl."""


def compute_metrics(
    outputs: Sequence[str], references: References, names: Iterable[str] = DEFAULT_METRICS
) -> list[MetricScore]:
    """Score outputs by each of the named metrics."""
    return [compute_score(metric, outputs, references) for metric in get_metrics(names)]


def compared_texts(
    metric: Metric,
    references: ReferenceLists,
    sources: Sequence[str] | None,
    gold_alignments: Sequence[str] | None = None,
) -> References:
    """Return what a metric compares outputs with; `gold_alignments` are those of the references."""
    if gold_alignments is not None and metric in ALIGNMENT_METRICS.values():
        return gold_alignments
    if metric.compares_with == "references":
        return references
    message = f"{metric.name}: the source texts are not known"
    check(sources is not None, "--metrics", message, "add --source FILE")
    return sources or ()


def get_metrics(
    names: Iterable[str], *, location: str = "metrics", registry: Mapping[str, Metric] = METRICS
) -> list[Metric]:
    """Return the metrics of these names; `location` is the setting that an error names."""
    metrics = []
    for name in names:
        check_choice(name, registry, "metric", location=location)
        metrics.append(registry[name])
    return metrics
