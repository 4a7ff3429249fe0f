"""Classification of images by glimpses as a task: labeled images, cross-entropy and REINFORCE."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.images.labeled_images import (
    LABELED_IMAGES,
    IdxImagesConfig,
    LabeledImage,
    LabeledImageBatch,
    LabeledImageBatchStream,
    LabeledImageDataset,
    stack_images,
)
from heedful.data.synthetic.digits import BuiltInDigitsConfig
from heedful.data.text.example_formats import ExampleSource
from heedful.errors import format_count
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.command_line import Split
from heedful.tasks.evaluation import DevEvaluator, Evaluation
from heedful.tasks.glimpse.draw_window import DrawWindowConfig
from heedful.tasks.glimpse.model import (
    GlimpseModel,
    GlimpseModelConfigBase,
    RecurrentAttentionConfig,
)
from heedful.tasks.glimpse.predictor import GlimpseClassifier, check_labels
from heedful.tasks.glimpse.trajectories import render_page
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task import Task
from heedful.tasks.task_data import (
    BatchShape,
    ExperimentConfig,
    NumericData,
    RowDataModule,
    VocabSizes,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.training.objectives import LossTerms, Objective

_MAX_SHOWN = 60  # trails on a page


class DevImageClassifier(DevEvaluator):
    """Classifies the first dev images; all metrics come from `batch_sums`."""

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        with self.predictor() as classifier:
            results = list(classifier.predict(self.examples[:count], location="dev images"))
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


class LabeledImageDataModule(RowDataModule):
    """Labeled images to train on and to validate on."""

    batches = LabeledImageBatchStream
    dev_batch_size = 1000


class LabeledImageData(NumericData):
    """The data of glimpse models."""

    model_inputs = "a glimpse model reads images"
    example_format = LABELED_IMAGES
    source_configs = (IdxImagesConfig, BuiltInDigitsConfig)
    batch_size_setting = "data.labeled_images.batch_size"
    batch_size_unit = "images"
    data_module = LabeledImageDataModule

    @override
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[LabeledImageDataset, list[str]]:
        location = config.data.train.describe() if split == "train" else "dev images"
        size, batching = config.model.image_size, config.data.labeled_images
        dataset = stack_images(data.examples, size, batching, location=location)
        check_labels(dataset, config.model.num_classes, location=location)
        return dataset, [_format_size(dataset)]

    @override
    def dummy_batch(
        self, model: GlimpseModelConfigBase, sizes: VocabSizes, shape: BatchShape, rows: int
    ) -> LabeledImageBatch:
        size = rows, model.image_size, model.image_size
        images = torch.randint(256, size, dtype=torch.uint8)
        return LabeledImageBatch(images, torch.randint(model.num_classes, (rows,)))


def _format_size(dataset: LabeledImageDataset) -> str:
    _, height, width = dataset.images.shape
    text = f"{format_count(len(dataset), 'image')} of {height} x {width} pixels"
    if not dataset.has_scenes:
        return text
    size, num = dataset.canvas_size, dataset.batching.num_distractors
    return f"{text}, placed on {size} x {size} with {num} distractors"


_MAX_SMALL_SIZE = 40


class GlimpseObjective(Objective):
    """-log p(class | image), the mean of the episodes of an image, summed over images.

    The losses of policies (REINFORCE) and baseline are auxiliary losses of the model.
    """

    @override
    def __call__(
        self, model: nn.Module, batch: LabeledImageBatch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        log_probs = output.log_probs.float()
        loss = nn.functional.nll_loss(log_probs, output.labels, reduction="sum")
        if self.label_smoothing:
            loss = torch.lerp(loss, -log_probs.mean(dim=-1).sum(), self.label_smoothing)
        num_episodes = len(output.labels) // len(batch.labels)
        return LossTerms(loss / num_episodes, output.auxiliary_losses)


class GlimpseTask(Task):
    """Classification of images by glimpses."""

    name = "glimpses"
    description = "classifies images by glimpses"
    next_command = "glimpse {run} FILE"
    model_configs = (RecurrentAttentionConfig, DrawWindowConfig)
    data = LabeledImageData()
    evaluation = GlimpseEvaluation()
    objective = GlimpseObjective
    no_decoder = "needs a decoder, and a glimpse model has none"
    default_recipes = ("default-glimpses", "ram-2014")
    examples_per_minute = 20_000

    @override
    def measure(self, train: Any, *, is_cpu: bool) -> tuple[int, dict[str, Any]]:
        """Take three scales for large images, the smallest a fifth of the image as in the paper."""
        images = train.read()
        size = max(images[0].pixels.shape)
        num_classes = max(2, 1 + max(image.label for image in images))
        settings = {"model.image_size": size, "model.num_classes": num_classes}
        if size > _MAX_SMALL_SIZE:
            settings |= {"model.num_scales": 3, "model.glimpse_size": size // 5}
        return len(images), settings

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> GlimpseClassifier:
        model, batching = cast(GlimpseModel, run.model), run.config.data.labeled_images
        return GlimpseClassifier(model, batching, device=device)

    @override
    def find_mismatch(
        self, first: GlimpseClassifier, other: GlimpseClassifier, folder: Path | str
    ) -> tuple[str, str] | None:
        expected, sizes = ((p.model.image_size, p.model.num_classes) for p in (first, other))
        message = "{} pixels and {} classes, but {folder} has {} and {}".format(
            *sizes, *expected, folder=folder
        )
        hint = "use runs with the same model.image_size and model.num_classes"
        return (message, hint) if sizes != expected else None


TASK = GlimpseTask()
