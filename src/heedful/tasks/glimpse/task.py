"""Classification of images by glimpses as a task: labeled images, cross-entropy and REINFORCE."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.images.example_formats import LABELED_IMAGES
from heedful.data.images.labeled_images import (
    IdxImagesConfig,
    LabeledImage,
    LabeledImageBatch,
    LabeledImageBatchStream,
    LabeledImageDataset,
    stack_images,
)
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.digits import BuiltInDigitsConfig
from heedful.data.text.example_formats import ExampleSource
from heedful.errors import RunError, check, format_count
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.glimpse.command import FILE_OPTIONS
from heedful.tasks.glimpse.default_recipe import default_recipe
from heedful.tasks.glimpse.draw_window import DrawWindowConfig
from heedful.tasks.glimpse.model import (
    GlimpseModel,
    GlimpseModelConfigBase,
    RecurrentAttentionConfig,
)
from heedful.tasks.glimpse.predictor import GlimpseClassifier, check_labels
from heedful.tasks.glimpse.trajectories import render_page
from heedful.tasks.numeric_task import NumericTask
from heedful.tasks.prediction import DevEvaluator
from heedful.tasks.task import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    LoadedRun,
    RunLoader,
    TrainData,
    VocabSizes,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective

_VALIDATION_BATCH_SIZE = 1000
_MAX_SHOWN = 60  # trails on a page


class GlimpseObjective(Objective):
    """-log p(class | image), the mean of the episodes of an image, summed over images.

    The losses of policies (REINFORCE) and baseline are auxiliary losses of the model.
    """

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    @override
    def normalizer(self, batch: LabeledImageBatch) -> int:
        return batch.num_targets

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


@dataclass(eq=False)
class LabeledImageDataModule(DataModule):
    """Labeled images to train on and to validate on."""

    train: LabeledImageDataset
    dev: LabeledImageDataset

    @override
    def train_batches(self, cursor: DataCursor) -> LabeledImageBatchStream:
        return LabeledImageBatchStream(self.train, self.recipe.training.seed, cursor)

    @override
    def validation_batches(self) -> Iterator[LabeledImageBatch]:
        for start in range(0, len(self.dev), _VALIDATION_BATCH_SIZE):
            stop = min(start + _VALIDATION_BATCH_SIZE, len(self.dev))
            yield self.dev.collate(np.arange(start, stop))


class DevImageClassifier(DevEvaluator):
    """Classifies the first dev images; all metrics come from `metric_sums`."""

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


class GlimpseTask(NumericTask):
    """Classification of images by glimpses."""

    name = "glimpses"
    description = "classifies images by glimpses"
    next_command = "glimpse {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_inputs = "a glimpse model reads images"
    example_format = LABELED_IMAGES
    model_configs = (RecurrentAttentionConfig, DrawWindowConfig)
    source_configs = (IdxImagesConfig, BuiltInDigitsConfig)
    file_options = FILE_OPTIONS
    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "glimpses": MetricSpec("Glimpses per image", higher_is_better=False),
    }
    has_evaluation_page = True
    compared_scores: ClassVar[Mapping[str, Direction]] = {
        "error rate": "lower",
        "loss": "lower",
        "glimpses per image": "lower",
    }
    comparison_hint = "compare runs with equal model.image_size and data.labeled_images"
    dev_evaluator = DevImageClassifier
    batch_size_setting = "data.labeled_images.batch_size"
    batch_size_unit = "images"

    @override
    def tokenize_train(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        corpora: Sequence[ExampleSource],
    ) -> TrainData:
        location = config.data.train.describe()
        dataset = self._stack(config, corpora[0].examples, location)
        return TrainData(dataset, dataset.fingerprint(), [_format_size(dataset)])

    @override
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> LabeledImageDataModule:
        dataset = self._stack(config, dev.examples, "dev images")
        report = [_format_size(dataset)]
        return LabeledImageDataModule(
            config, tokenizers, train.dataset, dataset, train.fingerprint, report
        )

    def _stack(
        self, config: ExperimentConfig, examples: Sequence[LabeledImage], location: str
    ) -> LabeledImageDataset:
        size, batching = config.model.image_size, config.data.labeled_images
        dataset = stack_images(examples, size, batching, location=location)
        return check_labels(dataset, config.model.num_classes, location=location)

    @override
    def worst_case_shapes(self, data_module: LabeledImageDataModule) -> list[BatchShape]:
        return [BatchShape(0, 1)]

    @override
    def max_rows(self, data_module: LabeledImageDataModule) -> int:
        return len(data_module.train)

    @override
    def mean_shape(self, batches: Sequence[LabeledImageBatch]) -> BatchShape:
        return BatchShape(0, 1)

    @override
    def dummy_batch(
        self,
        model: BaseConfig,
        sizes: VocabSizes,
        shape: BatchShape,
        rows: int,
        device: torch.device | str = "cpu",
    ) -> LabeledImageBatch:
        assert isinstance(model, GlimpseModelConfigBase), type(model)
        size = rows, model.image_size, model.image_size
        images = torch.randint(256, size, dtype=torch.uint8, device=device)
        return LabeledImageBatch(images, torch.randint(model.num_classes, (rows,), device=device))

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs a decoder, and a glimpse model has none")
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return GlimpseObjective(label_smoothing=training.label_smoothing)

    @override
    def metric_sums(self, model: Any, batch: LabeledImageBatch) -> Tensor:
        """Return -log p of the labels, correct classes, glimpses and the number of images."""
        output = model.predict(batch.render(model.image_size))
        log_probs, labels = to_float64(output.log_probs).cpu(), batch.labels.cpu()
        loss = nn.functional.nll_loss(log_probs, labels, reduction="sum")
        num_correct = (log_probs.argmax(dim=-1) == labels).double().sum()
        sums = [loss, num_correct, output.mean_glimpses.double().sum().cpu()]
        return torch.stack([*sums, loss.new_tensor(float(len(labels)))])

    @override
    def finalize_metrics(self, sums: Tensor) -> dict[str, float]:
        loss, num_correct, num_glimpses, count = sums.tolist()
        return {
            "loss": loss / count,
            "accuracy": num_correct / count,
            "glimpses": num_glimpses / count,
        }

    @override
    def format_metrics(self, metrics: Mapping[str, float]) -> str:
        error = 100 * (1 - metrics["accuracy"])
        return (
            f"validation loss {metrics['loss']:.4f}, error rate {error:.2f} %, "
            f"{metrics['glimpses']:.1f} glimpses"
        )

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> GlimpseClassifier:
        classifiers: list[GlimpseClassifier] = []
        for folder, config, _, model in members:
            if not isinstance(model, GlimpseModel):
                message = f"this run {config.task.description}, but {members[0].folder} "
                message += self.description
                raise RunError(str(folder), message, "leave it out")
            classifier = GlimpseClassifier(model, config.data.labeled_images, device=device)
            classifiers.append(classifier)
            first = classifiers[0].model
            sizes = (model.image_size, model.num_classes), (first.image_size, first.num_classes)
            message = "{} pixels and {} classes, but {folder} has {} and {}".format(
                *sizes[0], *sizes[1], folder=members[0].folder
            )
            hint = "use runs with the same model.image_size and model.num_classes"
            check(sizes[0] == sizes[1], str(folder), message, hint, RunError)
        first_classifier, *first_classifier.ensemble_with = classifiers
        return first_classifier

    @override
    def render_evaluation_page(
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


def _format_size(dataset: LabeledImageDataset) -> str:
    _, height, width = dataset.images.shape
    text = f"{format_count(len(dataset), 'image')} of {height} x {width} pixels"
    if not dataset.has_scenes:
        return text
    size, num = dataset.canvas_size, dataset.batching.num_distractors
    return f"{text}, placed on {size} x {size} with {num} distractors"


TASK = GlimpseTask()
