"""Uses of a trained model: predictions, outputs for a test set, samples in training."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from torch import nn
from typing_extensions import override

from heedful.evaluation.base import Metric, MetricScore, compute_score
from heedful.evaluation.registry import VALIDATION_METRICS
from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.attention_map import AttentionMap
from heedful.search.hypotheses import NaNLogProbsError
from heedful.training.callbacks import LoggedSample

_WEIGHT_DIGITS = 4


class Prediction(Protocol):
    """The output of a model for one request."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def attention_map(self) -> AttentionMap | None: ...
    @property
    def attention_layers(self) -> Sequence[AttentionLayer]: ...
    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        ...


class Predictor(Protocol):
    """A trained model with its tokenizers: texts in, predictions out."""

    model: Any

    def predict(
        self, requests: Iterable[Any], *, location: str = "text", start_index: int = 1
    ) -> Iterator[Prediction]:
        """Predict in order; errors name a request by location and index."""
        ...

    def predict_with_attention(self, requests: Iterable[Any], /) -> Iterator[Prediction]:
        """Predict; the results have the attention weights of each layer."""
        ...

    def evaluate(self, examples: Sequence[Any], /) -> list[MetricScore]:
        """Return the scores that `evaluate` shows by default."""
        ...

    def count_tokens(self, examples: Sequence[Any], /) -> int:
        """Return the number of tokens that `evaluate` predicts."""
        ...


def format_predictor(predictor: Any, *details: str) -> str:
    """Return the repr of a predictor, in one line."""
    name, model, parts = type(predictor).__name__, predictor.model, list(details)
    if isinstance(model, nn.Module):
        count = sum(parameter.numel() for parameter in model.parameters())
        parts.insert(0, f"{count:,} parameters")
    return f"<{name}: {', '.join([*parts, f'on {predictor.device}'])}>"


ProgressWrapper = Callable[[Iterable[Any], int], Iterable[Any]]
"""Passes predictions on and may show how many of the total there have been."""


@dataclass
class SystemOutputs:
    """The outputs of a predictor for a test set, one line per example; made when first needed."""

    predictor: Predictor
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    with_progress: ProgressWrapper

    @cached_property
    def texts(self) -> Sequence[str]:
        """The predicted texts."""
        predictions = self.predictor.predict(self.sources)
        return [output.text for output in self.with_progress(predictions, len(self.sources))]

    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        """Return the lines that a metric scores."""
        return self.texts


@dataclass
class DevEvaluator:
    """Predicts for dev examples during training; the base class predicts nothing.

    Invariant: parameters, training mode and random numbers are left as they were.
    """

    model: Any
    data_module: Any
    config: Any  # a recipe
    device: torch.device

    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        """Return the scores of these metrics that are computed from predictions."""
        return {}

    def sample_predictions(self, count: int) -> list[LoggedSample]:
        """Return predictions for the first dev examples, to be logged."""
        return []

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """Switch to eval mode without gradients; restore modes and random state after."""
        modes = [(module, module.training) for module in self.model.modules()]
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices):
            try:
                self.model.eval()
                yield
            finally:
                for module, mode in modes:
                    module.training = mode


class GreedyDevEvaluator(DevEvaluator):
    """Decodes dev examples greedily and scores the outputs against all references."""

    predictor_class: ClassVar[Callable[..., Predictor]]
    examples: Sequence[Any]  # with `source` and `references`

    @override
    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        metrics = {name: metric for name in names if (metric := VALIDATION_METRICS[name].metric)}
        examples = self.examples[:max_examples]
        if not metrics or not examples:
            return {}
        references = [example.references for example in examples]
        outputs = [result.text for result in self._decode(examples)] or [""] * len(examples)
        return {
            name: compute_score(metric, outputs, references).value
            for name, metric in metrics.items()
        }

    def _decode(self, examples: Sequence[Any]) -> list[Any]:
        """Decode; return nothing if log-probabilities are NaN: the trainer reports that."""
        if not examples:
            return []
        with self.eval_mode():
            tokenizers, decoding = self.data_module.tokenizers, self.config.decoding.greedy()
            predictor = self.predictor_class(self.model, tokenizers, decoding, device=self.device)
            try:
                return list(predictor.predict(example.source for example in examples))
            except NaNLogProbsError:
                return []


def round_weights(rows: Iterable[Iterable[float]]) -> list[list[float]]:
    """Return attention weights as they are logged."""
    return [[round(float(weight), _WEIGHT_DIGITS) for weight in row] for row in rows]
