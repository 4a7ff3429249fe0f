"""Metrics: how near are outputs to their references?

Every metric here is a measure that adds up from sentences, so that intervals and tests of
significance can be had for it (`resampling`, `significance`); these are the ways to ask for its
number alone. A number comes with its signature, without which it cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heedful.errors import ConfigError, choices_hint, did_you_mean
from heedful.evaluation.alignment_error_rate import AlignmentErrorRate
from heedful.evaluation.base import Metric, MetricScore, References, compute_score
from heedful.evaluation.perplexity import ATTENTION_ENTROPY, PERPLEXITY, PERPLEXITY_PER_WORD
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

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "MODEL_METRICS",
    "MetricScore",
    "bleu",
    "chrf",
    "compute_metrics",
    "exact_match",
    "get_metrics",
    "ter",
]

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
"""Every measure of outputs beside references, by the name it is asked for."""

MODEL_METRICS: Mapping[str, Metric] = {
    "perplexity": PERPLEXITY,
    "perplexity-per-word": PERPLEXITY_PER_WORD,
    "attention-entropy": ATTENTION_ENTROPY,
}
"""Measures of numbers that a model tells beside its outputs."""

DEFAULT_METRICS = ("exact-match", "bleu", "chrf")
"""What is measured unless other metrics are asked for."""


def exact_match(outputs: Sequence[str], references: References) -> MetricScore:
    """The share of outputs equal to a reference, character for character."""
    return compute_score(METRICS["exact-match"], outputs, references)


def bleu(outputs: Sequence[str], references: References) -> MetricScore:
    """BLEU (Papineni et al. 2002) as sacreBLEU computes it."""
    return compute_score(BLEU, outputs, references)


def chrf(outputs: Sequence[str], references: References) -> MetricScore:
    """The character n-gram F-score chrF (Popovic 2015) as sacreBLEU computes it."""
    return compute_score(CHRF, outputs, references)


def ter(outputs: Sequence[str], references: References) -> MetricScore:
    """Translation edit rate (Snover et al. 2006) as sacreBLEU computes it; lower is better."""
    return compute_score(TER, outputs, references)


def compute_metrics(
    outputs: Sequence[str], references: References, names: Iterable[str] = DEFAULT_METRICS
) -> list[MetricScore]:
    """Every metric that is asked for."""
    return [compute_score(each, outputs, references) for each in get_metrics(names)]


def get_metrics(
    names: Iterable[str], *, location: str = "metrics", registry: Mapping[str, Metric] = METRICS
) -> list[Metric]:
    """The measures of these names."""
    wanted = list(names)
    for name in wanted:
        if name not in registry:
            raise ConfigError(
                location,
                f"no metric is called {name!r}{did_you_mean(name, registry)}",
                choices_hint(registry),
            )
    return [registry[name] for name in wanted]
