"""The data of captioners."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
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
from heedful.errors import check, format_count
from heedful.models.captioning import CaptioningConfig
from heedful.tasks.captioning.command import FILE_OPTIONS
from heedful.tasks.captioning.images import name_images
from heedful.tasks.command_line import Split
from heedful.tasks.pair_data import PairData
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    TaskData,
    TrainData,
    VocabSizes,
    random_tokens,
)
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig, TokenizerPair
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
    file_options = FILE_OPTIONS
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
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> CaptionDataModule:
        module: Any = super().build_data_module(config, tokenizers, train, dev)
        source = config.data.dev or config.data.train
        return replace(module, dev_examples=name_examples(source, dev.examples))

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
