"""The data side of a task: its files and sources, its data sets, the shapes of its batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor, RowBatches
from heedful.data.text.batching import SourceBatch
from heedful.data.text.example_formats import ExampleFormat, ExampleSource
from heedful.data.text.sharded_dataset import PreparedDataset
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError, check
from heedful.pytree import tensors_of
from heedful.tasks.command_line import FileOptions, Split
from heedful.tokenization.tokenizer_pair import NoTokenizersConfig, TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.training.config import TrainingConfig
from heedful.training.state import ResumableBatches


class ExperimentConfig(Protocol):
    """The sections of a recipe that tasks read."""

    @property
    def task(self) -> Any: ...
    @property
    def data(self) -> Any: ...
    @property
    def tokenizers(self) -> Any: ...
    @property
    def model(self) -> Any: ...
    @property
    def training(self) -> TrainingConfig: ...
    @property
    def decoding(self) -> DecodingConfig: ...
    @property
    def evaluation(self) -> Any: ...


class BatchShape(NamedTuple):
    """Padded lengths of the rows of a batch; 0 source tokens in running text."""

    source_length: int
    target_length: int


class VocabSizes(NamedTuple):
    """Numbers of tokens, special tokens included."""

    source: int
    target: int

    @classmethod
    def from_tokenizers(cls, tokenizers: TokenizerPair) -> Self:
        """Return the sizes of both vocabularies."""
        return cls(len(tokenizers.source), len(tokenizers.target))


class TrainData(NamedTuple):
    """Tokenized training data."""

    dataset: Any  # a PairDataset, a TokenStream or a SeriesDataset
    fingerprint: str
    report: Sequence[str]  # lines about its size and what was filtered out


@dataclass(eq=False)
class DataModule(ABC):
    """Tokenized training and dev data of a run."""

    recipe: ExperimentConfig
    tokenizers: TokenizerPair
    train: Any
    dev: Any
    fingerprint: str  # hash of the training data
    dev_report: Sequence[str] = ()  # lines about the size of the dev data
    dev_examples: Sequence[Any] = ()

    @abstractmethod
    def train_batches(self, cursor: DataCursor) -> ResumableBatches:
        """Return the training batches from this position on."""

    @abstractmethod
    def validation_batches(self) -> Iterator[Any]:
        """Yield the dev batches, the same at each call."""


class RowDataModule(DataModule):
    """Data sets that have `len` and `collate(rows)`, in batches of equally many rows."""

    batches: ClassVar[type[RowBatches]] = RowBatches
    dev_batch_size: ClassVar[int | None] = None
    """Rows per dev batch; as many as to train if None."""

    @property
    def batch_size(self) -> int:
        """Rows per batch: as many of the largest as `batch_size_setting` allows."""
        data: TaskData = self.recipe.task.data
        largest = max(map(data.row_size, data.worst_case_shapes(self)))
        return max(1, data.batch_size(self.recipe) // largest)

    @override
    def train_batches(self, cursor: DataCursor) -> ResumableBatches:
        return self.batches(self.train, self.batch_size, self.recipe.training.seed, cursor)

    @override
    def validation_batches(self) -> Iterator[Any]:
        for start in range(0, len(self.dev), size := self.dev_batch_size or self.batch_size):
            yield self.dev.collate(np.arange(start, min(start + size, len(self.dev))))


@dataclass
class RowDataset:
    """Examples in memory, of which any can share a batch; what `repr` shows of them is hashed."""

    rows: Sequence[Any]
    collate_rows: Callable[[Sequence[Any]], Any]

    def __len__(self) -> int:
        return len(self.rows)

    def fingerprint(self) -> str:
        """Return a hash of all rows."""
        return blake2b(repr(self.rows).encode(), digest_size=16).hexdigest()

    def collate(self, rows: Sequence[int]) -> Any:
        """Return the batch of these rows."""
        return self.collate_rows([self.rows[row] for row in rows])


class TaskData(ABC):
    """The data that models of a task learn from."""

    example_format: ClassVar[ExampleFormat]
    source_configs: ClassVar[tuple[type[BaseConfig], ...]]
    """What data.dev and data.test may be."""
    train_source_configs: ClassVar[tuple[type[BaseConfig], ...]] = ()
    """What only data.train may be."""
    is_word_level: ClassVar[bool] = False
    """Whether outputs are labels of words, so that tokens must show where a word begins."""
    batch_size_setting: ClassVar[str] = "training.batching.max_tokens"
    """The setting that --auto-find-batch-size changes."""
    batch_size_unit: ClassVar[str] = "tokens"
    min_rank_batch_size: ClassVar[int] = 4
    """Of `batch_size_setting`, below which another process on a CPU brings nothing."""
    data_module: ClassVar[type[DataModule]] = RowDataModule

    @property
    def file_options(self) -> FileOptions:
        """The files of `train`, `prepare`, `evaluate` and `compare`: those of module `command`."""
        package = type(self).__module__.rpartition(".")[0]
        options: FileOptions = import_module(f"{package}.command").FILE_OPTIONS
        return options

    def check(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for sources, or tokenizers, of other data."""
        additional = config.data.additional_tests
        sources = {split: getattr(config.data, split) for split in ("train", "dev", "test")}
        sources |= {f"additional_tests.{name}": test for name, test in additional.items()}
        corpora = getattr(config.data.train, "corpora", ())
        sources |= {f"train.corpora.{row}.source": part.source for row, part in enumerate(corpora)}
        chosen = "leave out the recipe, and one for this data is chosen"
        for split, source in sources.items():
            train_only = self.train_source_configs if split == "train" else ()
            if source is not None and not isinstance(source, (*self.source_configs, *train_only)):
                message = f"the model (type: {config.model.type}) learns from "
                message += f"{self.example_format.description}, not from '{source.type}'"
                hint = f"give {self.file_options.usage('dev' if split == 'dev' else 'train')}"
                hint += f"; or {chosen}" if split.startswith("train") else ""
                raise ConfigError(f"data.{split}.type", message, hint)

    def describe_vocabulary(self, sizes: VocabSizes) -> str:
        """Return the vocabulary sizes as `train` prints them; empty if there are none."""
        return f"vocabulary: {sizes.target} tokens"

    def read_examples(self, source: Any) -> list[Any]:
        """Read the examples of a test set, each with `source` and `references`."""
        return source.read()

    @abstractmethod
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[Any, list[str]]:
        """Return examples as tokens, or as numbers, and lines about their size."""

    def tokenize_train(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, corpora: Sequence[ExampleSource]
    ) -> TrainData:
        """Tokenize the training examples of each source in memory; by default there is one."""
        dataset, report = self.build_dataset(config, tokenizers, corpora[0], "train")
        return TrainData(dataset, dataset.fingerprint(), report)

    def load_train(self, config: ExperimentConfig, prepared: PreparedDataset) -> TrainData:
        """Return training data that `heedful prepare` has tokenized; by default there is none."""
        raise self.example_format.no_tokens_error()

    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> DataModule:
        """Tokenize the dev examples and join them with the training data."""
        dataset, report = self.build_dataset(config, tokenizers, dev, "dev")
        report += self.check_dev(config, tokenizers, dev.examples)
        fingerprint, examples = train.fingerprint, self.dev_examples(config, dev)
        return self.data_module(
            config, tokenizers, train.dataset, dataset, fingerprint, report, examples
        )

    def check_dev(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, examples: Sequence[Any]
    ) -> list[str]:
        """Return lines about the dev examples; raise an error if they cannot be used."""
        return []

    def dev_examples(self, config: ExperimentConfig, dev: ExampleSource) -> Sequence[Any]:
        """Return the dev examples as those of a test set: by default as they are."""
        return dev.examples

    def row_size(self, shape: BatchShape) -> int:
        """Return what a row of this shape counts for in `batch_size_setting`: its tokens, or 1."""
        return sum(shape) if self.batch_size_unit == "tokens" else 1

    def worst_case_shapes(self, data_module: Any) -> list[BatchShape]:
        """Return the shapes of batches among which is the one that needs the most memory.

        By default, rows have no length.
        """
        return [BatchShape(0, 1)]

    def max_rows(self, data_module: Any) -> int:
        """Return the number of rows of the largest batch the data can fill: by default all."""
        return len(data_module.train)

    def mean_shape(self, batches: Sequence[Any]) -> BatchShape:
        """Return the mean unpadded lengths of the rows of batches, at least 1."""
        num_rows = sum(len(next(tensors_of(batch))) for batch in batches)
        num_tokens = sum(batch.num_tokens for batch in batches)
        return BatchShape(0, max(1, round(num_tokens / num_rows)))

    @abstractmethod
    def dummy_batch(self, model: Any, sizes: VocabSizes, shape: BatchShape, rows: int) -> Any:
        """Return a batch of random tokens, or numbers, for a model on torch's default device."""

    def pad_batch(self, config: ExperimentConfig, batch: Any) -> Any:
        """Return the batch with empty rows added, so that few shapes occur; by default as it is."""
        return batch

    def batch_size(self, config: ExperimentConfig) -> int:
        """Return the value of `batch_size_setting`."""
        return attrgetter(self.batch_size_setting)(config)

    def max_ranks(self, config: ExperimentConfig) -> int:
        """Return the number of processes among which a batch may be divided on a CPU."""
        return max(1, self.batch_size(config) // self.min_rank_batch_size)


class NumericData(TaskData):
    """Examples without tokens: numbers, images; `tokenizers.type` is 'none'."""

    model_inputs: ClassVar[str]
    """The model and what it reads, for messages: "a forecaster reads numbers"."""

    @override
    def check(self, config: ExperimentConfig) -> None:
        message = f"{self.model_inputs}, which have no tokenizers"
        is_none = isinstance(config.tokenizers, NoTokenizersConfig)
        check(is_none, "tokenizers.type", message, "set `tokenizers: {type: none}`")
        super().check(config)

    @override
    def describe_vocabulary(self, sizes: VocabSizes) -> str:
        return ""


def random_tokens(size: int, rows: int, length: int) -> Tensor:
    """Return random ids that are no special tokens."""
    return torch.randint(min(NUM_SPECIAL_TOKENS, size - 1), size, (rows, length))


def random_sources(size: int, rows: int, length: int) -> SourceBatch:
    """Return sources of random tokens without padding."""
    return SourceBatch(random_tokens(size, rows, length), torch.full((rows,), length))
