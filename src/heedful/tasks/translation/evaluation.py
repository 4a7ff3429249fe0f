"""The evaluation of translators."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from typing_extensions import override

from heedful.aligners.links import format_pharaoh
from heedful.data.text.pair_dataset import Pair
from heedful.decoding.requests import Request
from heedful.decoding.translation import Translation
from heedful.decoding.word_alignment import argmax_links, word_alignment
from heedful.errors import ConfigError, DataError, check
from heedful.evaluation.annotation_metrics import attention_entropies, format_numbers
from heedful.evaluation.base import Metric, compute_score
from heedful.evaluation.registry import (
    ALIGNMENT_METRICS,
    ALL_METRICS,
    DEFAULT_METRICS,
    MAX_NBEST,
    MODEL_METRICS,
    NBEST_METRICS,
    VALIDATION_METRICS,
)
from heedful.evaluation.text_metrics import join_outputs
from heedful.tasks.evaluation import METRIC_SETTING, SHOWN_METRICS_SETTING, Evaluation
from heedful.tasks.prediction import GreedyDevEvaluator, SystemOutputs, round_weights
from heedful.tasks.translation.translator import Translator
from heedful.training.callbacks import LoggedSample

# The lines that metrics parse. Only they are kept: weights would take far more memory.
_LINE_FORMATS: dict[str, Callable[[Translation], str]] = {
    "text": lambda translation: translation.text,
    "log_probs": lambda translation: format_numbers(translation.log_probs),
    "entropies": lambda translation: format_numbers(attention_entropies(translation.weights)),
    "alignment": lambda translation: format_pharaoh(word_alignment(translation, argmax_links)),
}


class TranslationOutputs(SystemOutputs):
    """The outputs of a translator for a test set.

    Most metrics score output texts; perplexity scores log-probabilities of the references, AER
    their word alignments, attention entropy the weights of the outputs. Invariant: sources are
    decoded at most once, and once more for n-best lists, and for weights where CTranslate2 finds
    the texts; references are scored at most once, and only if a metric needs it.
    """

    @override
    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        if metric in ALIGNMENT_METRICS.values():
            name = next(name for name, other in ALIGNMENT_METRICS.items() if other is metric)
            lines = self._scored["alignment"]
        elif metric in NBEST_METRICS.values():
            return self._nbest
        elif metric is MODEL_METRICS["attention-entropy"]:
            name, lines = "attention-entropy", self._outputs["entropies"]
        else:
            is_of_model = metric in MODEL_METRICS.values()
            return self._scored["log_probs"] if is_of_model else self.texts
        message = f"{name} needs attention weights, and this model has no attention"
        check(any(lines), "--metrics", message, "leave it out, or evaluate a run with attention")
        return lines

    @cached_property
    @override
    def texts(self) -> Sequence[str]:
        translator: Any = self.predictor
        if not translator.has_text_backend:
            return self._outputs["text"]
        return list(self.with_progress(translator.predict_texts(self.sources), len(self.sources)))

    @cached_property
    def _outputs(self) -> dict[str, list[str]]:
        return self._decode(self.sources)

    @cached_property
    def _nbest(self) -> list[str]:
        """The best outputs of each source; the search has as many hypotheses, or more."""
        translator: Any = self.predictor
        options = translator.options_class(n_best=MAX_NBEST)
        stream = translator.predict(self.sources, options)
        translations = self.with_progress(stream, len(self.sources))
        return [
            join_outputs(output.text for output in (best, *best.alternatives))
            for best in translations
        ]

    @cached_property
    def _scored(self) -> dict[str, list[str]]:
        """The first reference of each source, scored by the model."""
        pairs = zip(self.sources, self.references, strict=True)
        return self._decode([Request(source, target=choices[0]) for source, choices in pairs])

    def _decode(self, requests: Sequence[str | Request]) -> dict[str, list[str]]:
        lines: dict[str, list[str]] = {name: [] for name in _LINE_FORMATS}
        stream: Iterable[Any] = self.predictor.predict(requests)
        for translation in self.with_progress(stream, len(requests)):
            for name, format_line in _LINE_FORMATS.items():
                lines[name].append(format_line(translation))
        return lines


@dataclass
class GreedyTranslationEvaluator(GreedyDevEvaluator):
    """Decodes the first `max_eval_samples` dev sources that may be decoded."""

    predictor_class = Translator

    def __post_init__(self) -> None:
        config = self.config
        self.examples: list[Pair] = []
        max_length = min(config.decoding.max_source_length, config.data.filtering.max_length)
        encode = self.data_module.tokenizers.source.encode
        for pair in self.data_module.dev_pairs:
            has_text = bool(pair.source.strip() and pair.target.strip())
            if has_text and len(encode(pair.source)) <= max_length:
                self.examples.append(pair)
            if len(self.examples) == config.training.max_eval_samples:
                break
        self._check_metric(config.training.metric_for_best_model, METRIC_SETTING)
        for name in config.training.validation_metrics or ():
            self._check_metric(name, SHOWN_METRICS_SETTING)

    def _check_metric(self, name: str, setting: str) -> None:
        metric = VALIDATION_METRICS[name].metric
        if metric is None:
            return
        message = f"{name} needs outputs, but no dev source is short enough to be decoded"
        hint = f"raise decoding.max_source_length, or set {setting} to loss or accuracy"
        check(self.examples, setting, message, hint)
        references = [pair.target for pair in self.examples]
        try:
            compute_score(metric, references, references)
        except DataError as error:
            message = f"{name} cannot read the dev references: {error.message}"
            hint = f"set {setting} to a metric of text, such as bleu or exact-match"
            raise ConfigError(setting, message, hint) from error

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        samples = []
        pairs = self.examples[:count]
        for result, pair in zip(self._decode(pairs), pairs, strict=False):
            weights = round_weights(result.weights)
            samples.append(
                LoggedSample(
                    source=result.source_tokens,
                    reference=pair.target,
                    output=result.tokens,
                    text=result.text,
                    # A model without attention returns zeros.
                    attention=weights if any(map(any, weights)) else (),
                    source_text=pair.source,
                    copy_probs=result.copy_probs_to_json(),
                )
            )
        return samples


class TranslationEvaluation(Evaluation):
    """The evaluation of translators."""

    metrics = VALIDATION_METRICS
    shown_metrics = ("bleu", "chrf")
    uses_beam = True
    test_metrics = ALL_METRICS
    default_metrics = DEFAULT_METRICS
    system_outputs = TranslationOutputs
    dev_evaluator = GreedyTranslationEvaluator
