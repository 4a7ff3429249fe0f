"""The data of glimpse models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
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
from heedful.errors import format_count
from heedful.tasks.glimpse.command import FILE_OPTIONS
from heedful.tasks.glimpse.model import GlimpseModelConfigBase
from heedful.tasks.glimpse.predictor import check_labels
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    NumericData,
    TrainData,
    VocabSizes,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair

_VALIDATION_BATCH_SIZE = 1000


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


class LabeledImageData(NumericData):
    """The data of glimpse models."""

    model_inputs = "a glimpse model reads images"
    example_format = LABELED_IMAGES
    source_configs = (IdxImagesConfig, BuiltInDigitsConfig)
    file_options = FILE_OPTIONS
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


def _format_size(dataset: LabeledImageDataset) -> str:
    _, height, width = dataset.images.shape
    text = f"{format_count(len(dataset), 'image')} of {height} x {width} pixels"
    if not dataset.has_scenes:
        return text
    size, num = dataset.canvas_size, dataset.batching.num_distractors
    return f"{text}, placed on {size} x {size} with {num} distractors"
