"""Translation: write a target text for a source text, with an encoder-decoder or a prefix LM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from typing_extensions import override

from heedful.data.pair_dataset import Pair
from heedful.decoding.translation import Translation
from heedful.errors import ConfigError, DataError
from heedful.evaluation.base import Metric, compute_score
from heedful.evaluation.registry import DEFAULT_METRICS, METRICS, MODEL_METRICS, VALIDATION_METRICS
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.prefix_lm import PrefixLanguageModelConfig
from heedful.search.hypotheses import NaNLogProbsError
from heedful.tasks.file_options import PARALLEL_FILES
from heedful.tasks.pair_task import PairDataModule, PairTask
from heedful.tasks.task import (
    METRIC_SETTING,
    DevEvaluator,
    ExperimentConfig,
    LoadedRun,
    ProgressWrapper,
    SystemOutputs,
    isolated_eval,
)
from heedful.tasks.translation.ensembles import build_ensemble
from heedful.tasks.translation.outputs import TranslationOutputs
from heedful.tasks.translation.translator import Translator
from heedful.training.callbacks import LoggedSample

_WEIGHT_DIGITS = 4
_NO_ATTENTION: tuple[Sequence[float], ...] = ()


class TranslationTask(PairTask):
    """Translation."""

    name = "translation"
    description = "translates"
    next_command = "translate {run} FILE"
    model_configs = (EncoderDecoderConfig, PrefixLanguageModelConfig)
    file_options = PARALLEL_FILES
    metrics = VALIDATION_METRICS
    has_search = True
    evaluation_metrics: ClassVar[Mapping[str, Metric]] = {**METRICS, **MODEL_METRICS}
    default_metrics = DEFAULT_METRICS

    @override
    def build_predictor(
        self,
        members: Sequence[LoadedRun],
        device: torch.device,
        load_run: Callable[[Path | str], LoadedRun],
    ) -> Translator:
        _, config, tokenizers, _ = members[0]
        model = build_ensemble(members, load_run, device)
        return Translator(model, tokenizers, config.decoding, device=device)

    @override
    def comparison_metrics(self) -> Mapping[str, Metric]:
        return {name: spec.metric for name, spec in self.metrics.items() if spec.metric}

    @override
    def build_outputs(
        self,
        predictor: Any,
        sources: Sequence[str],
        references: Sequence[Sequence[str]],
        with_progress: ProgressWrapper = lambda predictions, total: predictions,
    ) -> SystemOutputs:
        return TranslationOutputs(predictor, sources, references, with_progress)

    @override
    def build_dev_evaluator(
        self, model: nn.Module, data_module: Any, config: ExperimentConfig, device: torch.device
    ) -> DevEvaluator:
        return GreedyTranslationEvaluator(model, data_module, config, device)


class GreedyTranslationEvaluator(DevEvaluator):
    """Decodes dev sources greedily."""

    def __init__(
        self,
        model: Any,
        data_module: PairDataModule,
        config: ExperimentConfig,
        device: torch.device,
    ) -> None:
        self.model = model
        self.tokenizers = data_module.tokenizers
        self.decoding = config.decoding.greedy()
        self.device = device
        self.pairs = _select_pairs(data_module, config)
        self._check_metric(config.training.metric_for_best_model)

    @override
    def compute_scores(self, names: Sequence[str]) -> dict[str, float]:
        metrics = {name: metric for name in names if (metric := _output_metric(name))}
        if not metrics:
            return {}
        outputs = [result.text for result in self._translate(self.pairs)]
        references = [pair.target for pair in self.pairs]
        return {
            name: compute_score(metric, outputs or [""] * len(references), references).value
            for name, metric in metrics.items()
        }

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        pairs = self.pairs[:count]
        results = self._translate(pairs)
        return [
            _make_sample(result, pair.target)
            for result, pair in zip(results, pairs, strict=bool(results))
        ]

    def _translate(self, pairs: Sequence[Pair]) -> list[Translation]:
        """Translate; return nothing if log-probabilities are NaN: the trainer reports that."""
        if not pairs:
            return []
        with isolated_eval(self.model, self.device):
            translator = Translator(self.model, self.tokenizers, self.decoding, device=self.device)
            try:
                return translator.translate([pair.source for pair in pairs])
            except NaNLogProbsError:
                return []

    def _check_metric(self, name: str) -> None:
        metric = _output_metric(name)
        if metric is None:
            return
        if not self.pairs:
            raise ConfigError(
                METRIC_SETTING,
                f"{name} needs outputs, but no dev source is short enough to be decoded",
                f"raise decoding.max_source_length, or set {METRIC_SETTING} to loss or accuracy",
            )
        references = [pair.target for pair in self.pairs]
        try:
            compute_score(metric, references, references)
        except DataError as error:
            raise ConfigError(
                METRIC_SETTING,
                f"{name} cannot read the dev references: {error.message}",
                f"set {METRIC_SETTING} to a metric of text, such as bleu or exact-match",
            ) from error


def _output_metric(name: str) -> Any:
    return TranslationTask.metrics[name].metric


def _select_pairs(data_module: PairDataModule, config: ExperimentConfig) -> list[Pair]:
    """Return the first `max_eval_samples` dev pairs whose source may be decoded."""
    max_length = min(config.decoding.max_source_length, config.data.filtering.max_length)
    pairs: list[Pair] = []
    for pair in data_module.dev_pairs:
        has_text = bool(pair.source.strip() and pair.target.strip())
        if has_text and len(data_module.tokenizers.source.encode(pair.source)) <= max_length:
            pairs.append(pair)
        if len(pairs) == config.training.max_eval_samples:
            break
    return pairs


def _make_sample(result: Translation, reference: str) -> LoggedSample:
    weights = [[round(float(weight), _WEIGHT_DIGITS) for weight in row] for row in result.weights]
    has_attention = any(map(any, weights))  # a model without attention returns zeros
    return LoggedSample(
        source=result.source_tokens,
        reference=reference,
        output=result.tokens,
        text=result.text,
        attention=weights if has_attention else _NO_ATTENTION,
    )


TASK = TranslationTask()
