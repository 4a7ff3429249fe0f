"""How models of a task are judged, in training and on test sets."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.errors import check, check_choice, choices_hint, did_you_mean
from heedful.evaluation.base import Direction, Metric, compute_score
from heedful.evaluation.confusion import ConfusionMatrix
from heedful.evaluation.registry import MetricSpec
from heedful.models.output_heads import count_correct, negative_log_likelihood
from heedful.search.hypotheses import NaNLogProbsError
from heedful.tasks.prediction import LoadedRun, Predictor
from heedful.tasks.task_data import ExperimentConfig
from heedful.training.callbacks import LoggedSample
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext

_WEIGHT_DIGITS = 4
METRIC_SETTING = "training.metric_for_best_model"
SHOWN_METRICS_SETTING = "training.validation_metrics"
METRICS_SETTING = "evaluation.metrics"

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
    """Predicts for dev examples during training, with the predictor of the task.

    Invariant: parameters, training mode and random numbers are left as they were.
    """

    model: Any
    data_module: Any
    config: Any  # a recipe
    device: torch.device
    dist_context: DistributedContext = SINGLE_PROCESS

    def __post_init__(self) -> None:
        self.examples = self.choose_examples()

    def choose_examples(self) -> Sequence[Any]:
        """Return the dev examples, each with `source`, `target` and `references`."""
        return self.data_module.dev_examples

    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        """Return the scores of these metrics that are computed from predictions.

        Ranks that share parameters predict a part of the examples each.
        """
        specs, examples = self.config.task.evaluation.metrics, self.examples[:max_examples]
        metrics = {name: metric for name in names if (metric := specs[name].metric)}
        if not metrics or not examples:
            return {}
        references = [example.references for example in examples]
        context = self.dist_context
        part = examples[context.rank :: context.world_size] if self.is_shared else examples
        outputs = [result.text for result in self._predict(part)] or [""] * len(part)
        if self.is_shared:
            outputs = context.gather_rows(outputs)
        return {
            name: compute_score(metric, outputs, references).value
            for name, metric in metrics.items()
        }

    @property
    def is_shared(self) -> bool:
        """Whether all ranks compute scores together; otherwise rank 0 does."""
        return self.dist_context.shares_parameters

    def sample_predictions(self, count: int) -> list[LoggedSample]:
        """Return predictions for the first dev examples, to be logged."""
        examples = self.examples[:count]
        return list(map(self.to_sample, self._predict(examples), examples))

    def to_sample(self, result: Any, example: Any) -> LoggedSample:
        """Return the prediction for an example as it is logged; no weights if all are zero."""
        weights = getattr(result, "weights", None)
        return LoggedSample(
            source=list(result.source_tokens),
            reference=example.target,
            output=list(result.tokens),
            text=result.text,
            attention=() if weights is None or not weights.any() else round_weights(weights),
            source_text=str(example.source),
        )

    def _predict(self, examples: Sequence[Any]) -> list[Any]:
        """Predict; return nothing if log-probabilities are NaN: the trainer reports that."""
        if not examples:
            return []
        with self.predictor() as predictor:
            try:
                return list(predictor.predict(example.source for example in examples))
            except NaNLogProbsError:
                return []

    @contextmanager
    def predictor(self) -> Iterator[Any]:
        """Yield the predictor of the model, which decodes greedily and is in eval mode inside."""
        config = self.config.model_copy(update={"decoding": self.config.decoding.greedy()})
        run = LoadedRun("", config, self.data_module.tokenizers, self.model)
        with self.eval_mode():
            yield config.task.build_predictor(run, self.device)

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


def round_weights(weights: NDArray[np.float32]) -> list[list[float]]:
    """Return attention weights as they are logged, a row per output token."""
    return [
        [round(float(weight), _WEIGHT_DIGITS) for weight in row] for row in np.atleast_2d(weights)
    ]


class Evaluation:
    """The metrics of a task; by default, loss and accuracy per target token."""

    metrics: ClassVar[Mapping[str, MetricSpec]]
    """What a validation can be judged by; "loss" first."""
    shown_metrics: ClassVar[tuple[str, ...]] = ()
    """Those that it shows beside what `batch_sums` gives, unless the recipe names others."""
    test_metrics: ClassVar[Mapping[str, Metric]] = {}
    """What `evaluate` and `compare` compute from texts and references; if there are none, they
    show what `Predictor.evaluate` returns."""
    default_metrics: ClassVar[tuple[str, ...]] = ()
    """What they compute by default, all of `test_metrics` if it is empty; the first decides a
    comparison."""
    compared_scores: ClassVar[Mapping[str, Direction]] = {}
    """The scores of `Predictor.evaluate` that `compare` shows, without references."""
    comparison_hint: ClassVar[str] = ""
    """What to do if `comparison_key` differs."""
    draws_page: ClassVar[bool] = False
    """Whether `evaluate --html` has something to draw."""
    uses_beam: ClassVar[bool] = False
    """Whether --beam has an effect."""
    system_outputs: ClassVar[type[SystemOutputs]] = SystemOutputs
    """What `evaluate` scores against references."""
    dev_evaluator: ClassVar[type[DevEvaluator]] = DevEvaluator
    """What predicts for dev examples during training."""

    @property
    def has_references(self) -> bool:
        """Whether predicted texts are scored against references."""
        return bool(self.test_metrics)

    def check(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for metrics and test sets that do not exist here."""
        message, hint = f"has no effect: the model {config.task.description}", "leave it out"
        is_valid = self.has_references or not config.data.additional_tests
        check(is_valid, "data.additional_tests", message, hint)
        shown_metrics = config.training.validation_metrics or ()
        names = [(METRIC_SETTING, config.training.metric_for_best_model)]
        names += [(SHOWN_METRICS_SETTING, metric) for metric in shown_metrics]
        for setting, metric in names:
            message = f"the model (type: {config.model.type}) has no metric called {metric!r}"
            message += did_you_mean(metric, self.metrics)
            check(metric in self.metrics, setting, message, choices_hint(self.metrics))
        for metric in config.evaluation.metrics:
            check_choice(metric, self.test_metrics, "metric", location=METRICS_SETTING)

    def batch_sums(self, model: nn.Module, batch: Any) -> Tensor:
        """Return float64 sums over a batch that add up over batches and ranks.

        By default: -log p of the targets, correct argmax tokens, and the number of targets.
        """
        log_probs = model(batch, need_weights=False).log_probs
        loss = negative_log_likelihood(log_probs, batch.targets).item()
        num_correct = count_correct(log_probs, batch.targets).item()
        return torch.tensor((loss, num_correct, batch.num_targets), dtype=torch.float64)

    def finalize(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics of summed `batch_sums`: by default means, of the first metrics."""
        *totals, count = sums.tolist()
        return {
            name: total / max(count, 1) for name, total in zip(self.metrics, totals, strict=False)
        }

    def format(self, metrics: Mapping[str, float]) -> str:
        """Return the metrics of a validation in one line."""
        others = dict(metrics)
        loss, accuracy = others.pop("loss"), others.pop("accuracy", None)
        if accuracy is None:  # not of tokens
            parts = (f"{name.replace('-', ' ')} {score:.4f}" for name, score in metrics.items())
            return f"validation {', '.join(parts)}"
        return (
            f"validation loss {loss:.4f}, perplexity {math.exp(min(loss, 50)):.2f}, "
            f"{100 * accuracy:.1f} % of tokens correct"
            + "".join(f", {name} {score:.2f}" for name, score in others.items())
        )

    def comparison_key(self, predictor: Any, examples: Sequence[Any]) -> object:
        """Return a key that must be equal in runs whose `Predictor.evaluate` is compared."""
        return None

    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix | None:
        """Return the confusions of labels, if outputs are labels."""
        return None

    def render_page(self, predictor: Any, examples: Sequence[Any], title: str) -> str:
        """Return the page of `evaluate --html`, of tasks without references that have one."""
        raise NotImplementedError

    def format_details(self, outputs: SystemOutputs) -> Iterable[str]:
        """Return further lines for `evaluate` to print below the scores."""
        confusion = self.confusion(outputs)
        return ["", *confusion.format_table()] if confusion else ()

    def choose_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return the metrics that are computed for these references by default."""
        return self.default_metrics or tuple(self.test_metrics)
