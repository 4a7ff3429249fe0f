"""Text classification as a task: pairs of a text and its label."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.batching import Batch
from heedful.data.examples import LABELED_TEXTS
from heedful.errors import RunError, check
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.pytree import to_float64
from heedful.shapes import Int
from heedful.tasks.classification.command import FILE_OPTIONS
from heedful.tasks.classification.model import TextClassifier, TextClassifierConfig
from heedful.tasks.classification.predictor import METRICS, Classifier, mean_f1
from heedful.tasks.pair_task import PairTask
from heedful.tasks.prediction import DevEvaluator, SystemOutputs, round_weights
from heedful.tasks.task import ExperimentConfig, LoadedRun, RunLoader
from heedful.tokenization.tokenizer import LabelTokenizerConfig
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.objectives import CrossEntropyObjectiveConfig, LossTerms, Objective


def label_indices(batch: Batch) -> Int[Tensor, "B"]:
    """Return the labels of a batch, counted from 0; negative where a label is unknown."""
    return batch.targets[:, 0] - NUM_SPECIAL_TOKENS


class LabelCrossEntropy(Objective):
    """-log p(label | text), summed over texts; with label smoothing as for tokens."""

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    @override
    def normalizer(self, batch: Batch) -> int:
        return len(batch.targets)

    @override
    def __call__(
        self, model: nn.Module, batch: Batch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        log_probs = output.log_probs.squeeze(1).float()
        loss = nn.functional.nll_loss(log_probs, label_indices(batch), reduction="sum")
        uniform = -log_probs.mean(dim=-1).sum()
        return LossTerms(torch.lerp(loss, uniform, self.label_smoothing), output.auxiliary_losses)


class SampleClassifier(DevEvaluator):
    """Classifies the first dev texts; all metrics come from `metric_sums`."""

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


class ClassificationTask(PairTask):
    """Text classification."""

    name = "classification"
    description = "classifies texts"
    next_command = "classify {run} FILE"
    model_configs = (TextClassifierConfig,)
    example_format = LABELED_TEXTS
    file_options = FILE_OPTIONS
    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "macro-f1": MetricSpec("Macro-F1", higher_is_better=True, unit="fraction"),
    }
    evaluation_metrics = comparison_metrics = METRICS
    default_metrics = tuple(METRICS)
    dev_evaluator = SampleClassifier

    @override
    def check_config(self, config: ExperimentConfig) -> None:
        target = getattr(config.tokenizers, "target", None)
        message = "the target texts of a text-classifier are labels"
        hint = "set `tokenizers: {type: separate, source: {type: word}, target: {type: label}}`"
        check(isinstance(target, LabelTokenizerConfig), "tokenizers.target.type", message, hint)
        super().check_config(config)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        for setting, value, expected in (
            ("objective", training.objective, CrossEntropyObjectiveConfig),
            ("scheduled_sampling", training.scheduled_sampling, TeacherForcingConfig),
        ):
            message = f"'{value.type}' needs a decoder, and a text-classifier has none"
            hint = f"remove training.{setting}"
            check(isinstance(value, expected), f"training.{setting}.type", message, hint)
        return LabelCrossEntropy(label_smoothing=training.label_smoothing)

    @override
    def pad_batch(self, config: ExperimentConfig, batch: Batch) -> Batch:
        return batch  # a row without a label has no loss

    @override
    def metric_sums(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, the number of unknown labels, and the confusion counts."""
        log_probs = to_float64(model(batch).log_probs.squeeze(1))
        labels = label_indices(batch).to(log_probs.device)
        is_known = labels >= 0
        log_probs, labels = log_probs[is_known], labels[is_known]
        loss = nn.functional.nll_loss(log_probs, labels, reduction="sum")
        num_labels = log_probs.size(1)
        cells = labels * num_labels + log_probs.argmax(dim=-1)
        confusion = torch.bincount(cells, minlength=num_labels**2)
        return torch.cat([loss[None], (~is_known).sum()[None], confusion]).double().cpu()

    @override
    def finalize_metrics(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics; texts with unknown labels count as errors of accuracy."""
        loss, num_unknown, *cells = sums.tolist()
        num_labels = math.isqrt(len(cells))
        confusion = np.reshape(cells, (num_labels, num_labels))  # expected, predicted
        num_known = max(float(confusion.sum()), 1)
        correct = np.diag(confusion)
        errors = confusion.sum(axis=0) - correct, confusion.sum(axis=1) - correct
        return {
            "loss": loss / num_known,
            "accuracy": float(correct.sum()) / (num_known + num_unknown),
            "macro-f1": float(mean_f1(np.stack([correct, *errors], axis=1))),
        }

    @override
    def format_metrics(self, metrics: Mapping[str, float]) -> str:
        return (
            f"validation loss {metrics['loss']:.4f}, accuracy {100 * metrics['accuracy']:.1f} %, "
            f"macro-F1 {100 * metrics['macro-f1']:.1f}"
        )

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Classifier:
        classifiers: list[Classifier] = []
        for folder, config, tokenizers, model in members:
            if not isinstance(model, TextClassifier):
                message = f"this run {config.task.description}, but {members[0].folder} classifies"
                raise RunError(str(folder), message, "leave it out")
            classifiers.append(Classifier(model, tokenizers, device=device))
            different = sorted(set(classifiers[0].labels) ^ set(classifiers[-1].labels))
            message = f"its labels differ from those of {members[0].folder}: {', '.join(different)}"
            check(not different, str(folder), message, "use runs with the same labels", RunError)
        first, *first.ensemble_with = classifiers
        return first

    @override
    def format_details(self, outputs: SystemOutputs) -> Iterator[str]:
        """Yield a table of precision, recall and F1 of each label."""
        references = outputs.references
        statistics = METRICS["macro-f1"].sentence_statistics(outputs.texts, references)
        counts = statistics.sum(axis=0).reshape(-1, 3)
        labels = sorted({choices[0].strip() for choices in references})
        width = max(len("label"), *map(len, labels))
        yield ""
        yield f"{'label':<{width}}  texts  precision  recall     F1"
        for label, (true, false, missed) in zip(labels, counts, strict=True):
            num_texts = true + missed
            precision, recall = 100 * true / max(true + false, 1), 100 * true / max(num_texts, 1)
            f1 = 200 * true / max(2 * true + false + missed, 1)
            yield f"{label:<{width}}  {num_texts:5.0f}  {precision:9.2f}  {recall:6.2f}  {f1:5.1f}"


TASK = ClassificationTask()
