"""The evaluation of text classifiers."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.evaluation.confusion import (
    ConfusionMatrix,
    confusion_sums,
    finalize_confusion,
    format_label_metrics,
)
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.classification.model import label_indices
from heedful.tasks.classification.predictor import METRICS, Classifier
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import DevEvaluator, SystemOutputs, round_weights
from heedful.training.callbacks import LoggedSample


class SampleClassifier(DevEvaluator):
    """Classifies the first dev texts; all metrics come from `batch_sums`."""

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        pairs = self.data_module.dev_pairs[:count]
        with self.eval_mode():
            classifier = Classifier(self.model, self.data_module.tokenizers, device=self.device)
            results = classifier.classify([pair.source for pair in pairs])
        return [
            LoggedSample(
                source=list(result.source_tokens),
                reference=pair.target,
                output=[result.text],
                text=result.text,
                attention=() if result.weights is None else round_weights(result.weights[None]),
                source_text=pair.source,
            )
            for result, pair in zip(results, pairs, strict=True)
        ]


class ClassificationEvaluation(Evaluation):
    """The evaluation of text classifiers."""

    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "macro-f1": MetricSpec("Macro-F1", higher_is_better=True, unit="fraction"),
    }
    test_metrics = METRICS
    default_metrics = tuple(METRICS)
    draws_page = True
    dev_evaluator = SampleClassifier

    @override
    def batch_sums(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, the number of unknown labels, and the confusion counts."""
        log_probs = to_float64(model(batch).log_probs.squeeze(1))
        labels = label_indices(batch).to(log_probs.device)
        is_known = labels >= 0
        loss = nn.functional.nll_loss(log_probs[is_known], labels[is_known], reduction="sum")
        predicted = log_probs.argmax(dim=-1)
        return confusion_sums(loss, is_known.sum(), predicted, labels, log_probs.size(1))

    @override
    def finalize(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics; texts with unknown labels count as errors of accuracy."""
        return finalize_confusion(sums)

    @override
    def format(self, metrics: Mapping[str, float]) -> str:
        return format_label_metrics(metrics)

    @override
    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix:
        labels = [choices[0].strip() for choices in outputs.references]
        return ConfusionMatrix.from_labels("texts", labels, outputs.texts)
