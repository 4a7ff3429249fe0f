"""Captioning as a task: captions with their images, and the likelihood of their tokens.

Models are evaluated on a test set, and on dev images during training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.data.images.batching import (
    CAPTIONED_IMAGES,
    CaptionBatchStream,
    CaptionDataset,
    open_images,
)
from heedful.data.images.captions import CAPTION_SOURCES, CaptionedImage
from heedful.data.images.features import ImageFeatures
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.images import BuiltInImagesConfig
from heedful.data.text.batching import Batch, SourceBatch, collate, epoch_batches
from heedful.data.text.example_formats import ExampleSource
from heedful.data.text.pair_dataset import Pair, PairDataset
from heedful.errors import RunError, check, format_count
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import VALIDATION_METRICS
from heedful.models.captioning import CaptioningConfig
from heedful.models.efficientnet import EfficientNetEncoder
from heedful.models.image_encoders import FeatureEncoder
from heedful.tasks.captioning.images import name_images
from heedful.tasks.captioning.predictor import Caption, Captioner, image_encoder_of
from heedful.tasks.command_line import Split
from heedful.tasks.evaluation import DevEvaluator, Evaluation
from heedful.tasks.pair_data import PairData
from heedful.tasks.prediction import LoadedRun, RunLoader
from heedful.tasks.search_predictor import combine_models
from heedful.tasks.task import DefaultRecipe, Task, until_time_is_over
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    TaskData,
    VocabSizes,
    random_tokens,
)
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig, TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.training.rollouts import ReferenceTable

_MAX_NOTES = 10  # about unusual images, in the report of a data set


class ImageExample(NamedTuple):
    """A captioned image as an example to evaluate: its name, and its references."""

    source: str
    captions: tuple[str, ...]

    @property
    def target(self) -> str:
        """The first caption."""
        return self.captions[0]

    @property
    def references(self) -> tuple[str, ...]:
        """All captions."""
        return self.captions


def name_examples(source: Any, images: Sequence[CaptionedImage]) -> list[ImageExample]:
    """Return captioned images under the names that a captioner loads them by."""
    names = name_images(source.open_images(), [image.image for image in images])
    return [ImageExample(name, image.captions) for name, image in zip(names, images, strict=True)]


@dataclass(eq=False)
class CaptionDataModule(DataModule):
    """Captioned images."""

    train: CaptionDataset
    dev: CaptionDataset

    @property
    def train_pairs(self) -> PairDataset:
        """The captions without their images."""
        return self.train.captions

    @override
    def train_batches(self, cursor: DataCursor) -> CaptionBatchStream:
        config = self.recipe.training
        return CaptionBatchStream(
            self.train.captions, config.batching, seed=config.seed, cursor=cursor, images=self.train
        )

    @override
    def validation_batches(self) -> Iterator[Batch]:
        config, captions = self.recipe.training, self.dev.captions
        for spec, *_ in epoch_batches(captions, config.batching, seed=config.seed, epoch=0):
            yield self.dev.add_images(collate(captions, spec))

    def build_reference_table(self) -> ReferenceTable:
        """Return the training captions, grouped by their images."""
        captions = self.train.captions
        images = captions.source.padded(1, fill=0)[:, 0]
        return ReferenceTable.from_rows(images.astype(np.uint64), captions.target)


class CaptionData(PairData):
    """The data of captioners."""

    example_format = CAPTIONED_IMAGES
    source_configs = (*CAPTION_SOURCES, BuiltInImagesConfig)
    train_source_configs = ()
    data_module = CaptionDataModule

    @override
    def check(self, config: ExperimentConfig) -> None:
        message = "images have no tokens, so there is one tokenizer: that of the captions"
        hint = "set `tokenizers: {type: shared, tokenizer: {type: word}}`"
        is_shared = isinstance(config.tokenizers, SharedTokenizerConfig)
        check(is_shared, "tokenizers.type", message, hint)
        super().check(config)

    describe_vocabulary = TaskData.describe_vocabulary

    @override
    def read_examples(self, source: Any) -> list[ImageExample]:
        return name_examples(source, source.read())

    tokenize_train, load_train = TaskData.tokenize_train, TaskData.load_train

    @override
    def dev_examples(self, config: ExperimentConfig, dev: ExampleSource) -> list[ImageExample]:
        return name_examples(config.data.dev or config.data.train, dev.examples)

    @override
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[CaptionDataset, list[str]]:
        """Tokenize captions, one row for each, and open their images."""
        source = (config.data.dev if split == "dev" else None) or config.data.train
        images: Sequence[CaptionedImage] = data.examples
        numbers = [row for row, image in enumerate(images) for _ in image.captions]
        captions = [caption for image in images for caption in image.captions]
        pairs = [Pair(str(row), caption) for row, caption in zip(numbers, captions, strict=True)]
        located = ExampleSource(pairs, lambda index: data.locate(numbers[index]))
        location = f"data.{split}"
        (rows,), report = self._tokenize(config, tokenizers, [located], location)
        encoder, train = config.model.encoder, config.data.train.open_images()
        notes: list[str] = []
        reader = open_images(
            source.open_images(),
            [image.image for image in images],
            encoder.image_shape,
            location=location,
            scale=train.scale if isinstance(train, ImageFeatures) else None,
            notes=notes,
        )
        num_cells = encoder.grid[0] * encoder.grid[1]
        lines = [
            f"{format_count(len(images), 'image')} with {format_count(len(captions), 'caption')}"
        ]
        if split == "train":
            lines += filter(None, [encoder.image_shape.describe_fit()])
        lines += [*report.format_lines(), *notes[:_MAX_NOTES]]
        if len(notes) > _MAX_NOTES:
            lines.append(f"and {len(notes) - _MAX_NOTES:,} more such images")
        return CaptionDataset(rows, reader, num_cells), lines

    @override
    def pad_batch(self, config: ExperimentConfig, batch: Batch) -> Batch:
        """Return the batch with as many rows as its lengths allow; added rows repeat images.

        Their targets are padding, so they have no loss, and batch norms see real images only.
        """
        num_rows = len(batch.targets)
        limit = config.training.batching.max_tokens // self.row_size(
            BatchShape(SOURCE_LENGTH, batch.targets.size(1))
        )
        rows = torch.arange(max(num_rows, limit)) % num_rows
        missing = len(rows) - num_rows
        inputs, targets = (pad(part, (0, 0, 0, missing)) for part in batch[1:3])
        sources = SourceBatch(*(part[rows] for part in batch.sources))
        ids = None if batch.reference_ids is None else batch.reference_ids[rows]
        return Batch(sources, inputs, targets, ids)

    @override
    def dummy_batch(self, model: Any, sizes: VocabSizes, shape: BatchShape, rows: int) -> Batch:
        assert isinstance(model, CaptioningConfig), type(model)
        targets = random_tokens(sizes.target, rows, shape.target_length)
        image, grid = model.encoder.image_shape, model.encoder.grid
        size = (image.num_channels, image.height, image.width)
        if not image.has_pixels:
            size = (1, grid[0] * grid[1], image.num_channels)
        inputs = torch.rand(rows, *size)
        lengths = torch.full((rows,), grid[0] * grid[1])
        sources = SourceBatch(inputs if image.has_pixels else inputs.squeeze(1), lengths)
        return Batch(sources, targets, targets)


SOURCE_LENGTH = 2
"""What an image counts for in `training.batching.max_tokens`."""


class DevCaptioner(DevEvaluator):
    """Captions the first `max_eval_samples` dev images."""

    @override
    def choose_examples(self) -> Sequence[Any]:
        return super().choose_examples()[: self.config.training.max_eval_samples]

    @override
    def to_sample(self, result: Caption, example: Any) -> LoggedSample:
        return super().to_sample(result, example)._replace(grid=result.grid)


class CaptioningEvaluation(Evaluation):
    """The evaluation of captioners."""

    metrics = VALIDATION_METRICS
    shown_metrics = ("bleu-4", "cider-d")
    uses_beam = True
    test_metrics: ClassVar[Mapping[str, Metric]] = {
        name: spec.metric for name, spec in VALIDATION_METRICS.items() if spec.metric
    }
    default_metrics = ("bleu-4", "bleu-3", "bleu-2", "bleu-1", "caption-rouge-l", "cider-d")
    dev_evaluator = DevCaptioner


_MANY_CAPTIONS = 10_000  # from which on words of less than 5 occurrences are unknown
_STRIDE = 8  # pixels per cell of default-captioner
_MAX_IMAGE_SIZE, _REDUCED_SIZE = 96, 64
_NUM_MEASURED = 20  # images that are looked at for colors


def _image_settings(images: list[Any]) -> dict[str, Any]:
    """Return the size and the channels of images, (rows, columns, channels) each."""
    size = [-(-length // _STRIDE) * _STRIDE for length in images[0].shape[:2]]
    if max(size) > _MAX_IMAGE_SIZE:
        size = [_REDUCED_SIZE, _REDUCED_SIZE]
    is_gray = all((image == image[:, :, :1]).all() for image in images)
    return {
        "model.encoder.image_size": size,
        "model.encoder.num_channels": 1 if is_gray else 3,
        "model.encoder.positional_encoding.max_positions": max(size) // _STRIDE,
    }


_MAX_MEASURED_IMAGES = 2000  # whose features are read to standardize channels


class CaptioningTask(Task):
    """Captioning of images."""

    name = "captioning"
    description = "captions images"
    next_command = "caption {run} IMAGES"
    model_configs = (CaptioningConfig,)
    data = CaptionData()
    evaluation = CaptioningEvaluation()
    examples_per_minute = 10_000  # captions

    @override
    def default_recipe(self, device: torch.device, train: Any) -> DefaultRecipe:
        """Size encoders by the first images, or by the grid and the channels of features."""
        if train is None:
            return DefaultRecipe("default-captioner")
        examples, store = train.read(), train.open_images()
        num_captions = sum(len(example.captions) for example in examples)
        settings: dict[str, Any] = {
            "tokenizers.tokenizer.min_frequency": 5 if num_captions >= _MANY_CAPTIONS else 2,
            "training.max_minutes": self.choose_minutes(num_captions),
        }
        if not isinstance(store, ImageFeatures):
            images = store.read([example.image for example in examples[:_NUM_MEASURED]])
            return DefaultRecipe("default-captioner", {**settings, **_image_settings(images)})
        settings["model.encoder.grid"] = list(store.grid)
        settings["model.encoder.num_channels"] = store.num_channels
        if device.type == "cpu":
            return DefaultRecipe("default-feature-captioner", settings)
        settings = {**until_time_is_over(), **settings}
        return DefaultRecipe("show-attend-tell-2015-soft-flickr8k", settings)

    @override
    def initialize_model(self, model: nn.Module, data_module: CaptionDataModule) -> None:
        """Load published weights, and give feature encoders the statistics of the training data."""
        config: Any = data_module.recipe
        store = config.data.train.open_images()
        for module in model.modules():
            if isinstance(module, EfficientNetEncoder):
                module.load_weights()
            if isinstance(module, FeatureEncoder) and isinstance(store, ImageFeatures):
                _set_statistics(module, store)

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> Captioner:
        model: Any = run.model
        return Captioner(model, run.tokenizers, run.config.decoding, device=device)

    @override
    def combine_runs(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Captioner:
        expected = None
        for folder, config, _, model in members:
            is_captioner = isinstance(config.model, CaptioningConfig)
            message = f"this run {config.task.description}, but {members[0].folder} captions images"
            check(is_captioner, str(folder), message, "leave it out", RunError)
            shape = image_encoder_of(model).image_shape
            expected = expected or shape
            message = f"reads {shape.describe()}, but {members[0].folder} {expected.describe()}"
            hint = "use runs that read the same images"
            check(shape == expected, str(folder), message, hint, RunError)
        ensemble: Any = combine_models(members, device)
        return self.build_predictor(members[0]._replace(model=ensemble), device)


def _set_statistics(encoder: FeatureEncoder, features: ImageFeatures) -> None:
    """Set step and offset, and mean and deviation over evenly spaced images of a feature file."""
    if features.scale is not None:
        encoder.step.copy_(torch.from_numpy(features.scale[0]))
        encoder.offset.copy_(torch.from_numpy(features.scale[1]))
    if encoder.standardize:
        count = min(len(features), _MAX_MEASURED_IMAGES)
        rows = np.linspace(0, len(features) - 1, count).round().astype(np.int64)
        values: Tensor = torch.from_numpy(features.read(rows)).double().flatten(0, 1)
        encoder.mean.copy_(values.mean(dim=0))
        encoder.deviation.copy_(values.std(dim=0).clamp(min=1e-6))


TASK = CaptioningTask()
