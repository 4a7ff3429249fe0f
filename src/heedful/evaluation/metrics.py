"""Metrics: how near are outputs to their references?

Every metric here is a measure that adds up from sentences, so that intervals and tests of
significance can be had for it (`resampling`, `significance`); these are the ways to ask for its
number alone. A number comes with its signature, without which it cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heedful.errors import ConfigError, choose_from, did_you_mean
from heedful.evaluation.accuracy import ExactMatch, TokenAccuracy
from heedful.evaluation.alignment_errors import AlignmentErrors
from heedful.evaluation.error_rates import CHARACTER_ERRORS, FREE_ERRORS, WORD_ERRORS
from heedful.evaluation.measures import Measure, Metric, References, score
from heedful.evaluation.rouge import ROUGE_1, ROUGE_2, ROUGE_L
from heedful.evaluation.spans import SpanF1
from heedful.evaluation.surprises import ATTENTION_ENTROPY, PERPLEXITY, PERPLEXITY_PER_WORD
from heedful.evaluation.translation import BLEU, CHRF, MULTI_BLEU, TER, TOKENISED_BLEU

__all__ = [
    "MEASURES",
    "TOLD_BESIDE",
    "USUAL",
    "Metric",
    "bleu",
    "choose",
    "chrf",
    "exact_match",
    "measure",
    "ter",
]

MEASURES: Mapping[str, Measure] = {
    "exact-match": ExactMatch(),
    "bleu": BLEU,
    "chrf": CHRF,
    "ter": TER,
    "tokenised-bleu": TOKENISED_BLEU,
    "multi-bleu": MULTI_BLEU,
    "rouge-1": ROUGE_1,
    "rouge-2": ROUGE_2,
    "rouge-l": ROUGE_L,
    "token-accuracy": TokenAccuracy(),
    "wer": WORD_ERRORS,
    "per": FREE_ERRORS,
    "cer": CHARACTER_ERRORS,
    "span-f1": SpanF1(),
    "span-f1-iob2": SpanF1("span F1 (IOB2)", scheme="iob2"),
    "aer": AlignmentErrors(),
}
"""Every measure of outputs beside references, by the name it is asked for."""

TOLD_BESIDE: Mapping[str, Measure] = {
    "perplexity": PERPLEXITY,
    "perplexity-per-word": PERPLEXITY_PER_WORD,
    "attention-entropy": ATTENTION_ENTROPY,
}
"""Measures of numbers that a model tells beside its outputs."""

USUAL = ("exact-match", "bleu", "chrf")
"""What is measured unless other metrics are asked for."""


def exact_match(outputs: Sequence[str], references: References) -> Metric:
    """The share of outputs equal to a reference, character for character."""
    return score(MEASURES["exact-match"], outputs, references)


def bleu(outputs: Sequence[str], references: References) -> Metric:
    """BLEU (Papineni et al. 2002) as sacreBLEU computes it."""
    return score(BLEU, outputs, references)


def chrf(outputs: Sequence[str], references: References) -> Metric:
    """The character n-gram F-score chrF (Popovic 2015) as sacreBLEU computes it."""
    return score(CHRF, outputs, references)


def ter(outputs: Sequence[str], references: References) -> Metric:
    """Translation edit rate (Snover et al. 2006) as sacreBLEU computes it; lower is better."""
    return score(TER, outputs, references)


def measure(
    outputs: Sequence[str], references: References, names: Iterable[str] = USUAL
) -> list[Metric]:
    """Every metric that is asked for."""
    return [score(each, outputs, references) for each in choose(names)]


def choose(
    names: Iterable[str], *, at: str = "metrics", among: Mapping[str, Measure] = MEASURES
) -> list[Measure]:
    """The measures of these names."""
    wanted = list(names)
    for name in wanted:
        if name not in among:
            raise ConfigError(
                at,
                f"no metric is called {name!r}{did_you_mean(name, among)}",
                choose_from(among),
            )
    return [among[name] for name in wanted]
