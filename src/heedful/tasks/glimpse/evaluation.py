"""The evaluation of glimpse models."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.images.labeled_images import (
    LabeledImage,
    LabeledImageBatch,
    LabeledImageDataset,
)
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.glimpse.predictor import GlimpseClassifier
from heedful.tasks.glimpse.trajectories import render_page
from heedful.tasks.prediction import DevEvaluator
from heedful.training.callbacks import LoggedSample

_MAX_SHOWN = 60  # trails on a page


class DevImageClassifier(DevEvaluator):
    """Classifies the first dev images; all metrics come from `batch_sums`."""

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        dev: LabeledImageDataset = self.data_module.dev
        examples = list(map(LabeledImage, dev.images[:count], dev.labels[:count].tolist()))
        if not examples:
            return []
        with self.eval_mode():
            classifier = GlimpseClassifier(self.model, dev.batching, device=self.device)
            results = list(classifier.classify(examples, location="dev images"))
        return [
            LoggedSample(
                source=[f"image {index}"],
                reference=str(result.target),
                output=[str(step.argmax()) for step in result.step_probabilities],
                text=result.text,
                attention=(),
                source_text=f"image {index}, after each glimpse",
            )
            for index, result in enumerate(results, start=1)
        ]


class GlimpseEvaluation(Evaluation):
    """The evaluation of glimpse models."""

    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "glimpses": MetricSpec("Glimpses per image", higher_is_better=False),
    }
    draws_page = True
    compared_scores: ClassVar[Mapping[str, Direction]] = {
        "error rate": "lower",
        "loss": "lower",
        "glimpses per image": "lower",
    }
    comparison_hint = "compare runs with equal model.image_size and data.labeled_images"
    dev_evaluator = DevImageClassifier

    @override
    def batch_sums(self, model: Any, batch: LabeledImageBatch) -> Tensor:
        """Return -log p of the labels, correct classes, glimpses and the number of images."""
        output = model.predict(batch.render(model.image_size))
        log_probs, labels = to_float64(output.log_probs).cpu(), batch.labels.cpu()
        loss = nn.functional.nll_loss(log_probs, labels, reduction="sum")
        num_correct = (log_probs.argmax(dim=-1) == labels).double().sum()
        sums = [loss, num_correct, output.mean_glimpses.double().sum().cpu()]
        return torch.stack([*sums, loss.new_tensor(float(len(labels)))])

    @override
    def finalize(self, sums: Tensor) -> dict[str, float]:
        loss, num_correct, num_glimpses, count = sums.tolist()
        return {
            "loss": loss / count,
            "accuracy": num_correct / count,
            "glimpses": num_glimpses / count,
        }

    @override
    def format(self, metrics: Mapping[str, float]) -> str:
        error = 100 * (1 - metrics["accuracy"])
        return (
            f"validation loss {metrics['loss']:.4f}, error rate {error:.2f} %, "
            f"{metrics['glimpses']:.1f} glimpses"
        )

    @override
    def render_page(
        self, predictor: GlimpseClassifier, examples: Sequence[LabeledImage], title: str
    ) -> str:
        results = predictor.classify(examples)
        errors = [result for result in results if result.label != result.target]
        return render_page(errors[:_MAX_SHOWN], title=f"{title}: errors")

    @override
    def comparison_key(
        self, predictor: GlimpseClassifier, examples: Sequence[LabeledImage]
    ) -> object:
        batching = predictor.batching
        return predictor.model.image_size, batching.num_distractors, batching.distractor_size
