"""Data of pairs of texts: tokenized pairs, bucketed batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch.nn.functional import pad
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor
from heedful.data.text.batching import (
    Batch,
    BatchStream,
    collate,
    collate_sources,
    epoch_batches,
    padded_lengths,
)
from heedful.data.text.example_formats import PAIRS, ExampleSource, tokenize_corpora
from heedful.data.text.filtering import FilterReport
from heedful.data.text.pair_dataset import (
    InMemoryPairDataset,
    MixedDataset,
    PairDataset,
    ResegmentedDataset,
    UnkAugmentedDataset,
)
from heedful.data.text.pair_files import PAIR_SOURCES, MixtureConfig
from heedful.data.text.sharded_dataset import PreparedDataConfig, PreparedDataset
from heedful.errors import check
from heedful.pytree import map_tensors
from heedful.tasks.command_line import Split
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    TaskData,
    TrainData,
    VocabSizes,
    random_sources,
    random_tokens,
)
from heedful.tokenization.ragged_array import RaggedArray
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig, TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.training.guided_alignment import hash_rows
from heedful.training.rollouts import ReferenceTable

_MAX_BUCKETS = 64  # buckets of an epoch that are searched for batch shapes
_ROWS_PER_READ = 1 << 20
_ROWS_PER_TABLE_READ = 1024  # padded to the longest source


@dataclass(eq=False)
class PairDataModule(DataModule):
    """Pairs of texts."""

    train: PairDataset
    dev: InMemoryPairDataset

    @property
    def train_pairs(self) -> PairDataset:
        """The training pairs, whose lengths decide the shapes of batches."""
        return self.train

    @override
    def train_batches(self, cursor: DataCursor) -> BatchStream:
        config = self.recipe.training
        regularizers = self.recipe.tokenizers.build_regularizers(self.tokenizers)
        train = self.train
        if any(regularizers):
            train = ResegmentedDataset(train, regularizers, seed=config.seed)
        tokenizers = self.recipe.tokenizers
        if isinstance(tokenizers, SharedTokenizerConfig) and tokenizers.hidden_word_rate:
            size, rate = len(self.tokenizers.source), tokenizers.hidden_word_rate
            train = UnkAugmentedDataset(train, size, rate, seed=config.seed)
        return BatchStream(train, config.batching, seed=config.seed, cursor=cursor)

    @override
    def validation_batches(self) -> Iterator[Batch]:
        config = self.recipe.training
        for spec, *_ in epoch_batches(self.dev, config.batching, seed=config.seed, epoch=0):
            yield collate(self.dev, spec)

    def build_reference_table(self) -> ReferenceTable:
        """Return the targets of the training data, grouped by their sources."""
        tokenizers = self.recipe.tokenizers
        is_changed = any(tokenizers.build_regularizers(self.tokenizers))
        is_changed |= bool(getattr(tokenizers, "hidden_word_rate", 0))
        message = "'cider-d' needs tokens that are the same in each epoch"
        hint = "remove subword_regularization and hidden_word_rate from the tokenizers"
        check(not is_changed, "training.objective.reward", message, hint)
        train, keys, targets = self.train, [], []
        for dataset in train.datasets if isinstance(train, MixedDataset) else [train]:
            for start in range(0, len(dataset), _ROWS_PER_TABLE_READ):
                end = min(start + _ROWS_PER_TABLE_READ, len(dataset))
                sources, texts = dataset.select(np.arange(start, end))
                rows = [sources.get(row) for row in range(len(sources))]
                keys.append(hash_rows(collate_sources(rows).tokens))
                targets.append(texts)
        return ReferenceTable.from_rows(np.concatenate(keys), RaggedArray.concatenate(targets))


class PairData(TaskData):
    """Pairs of a source and a target text."""

    example_format = PAIRS
    source_configs = PAIR_SOURCES
    train_source_configs: ClassVar[tuple[type[BaseConfig], ...]] = (
        MixtureConfig,
        PreparedDataConfig,
    )
    min_rank_batch_size = 384
    data_module: ClassVar[type[DataModule]] = PairDataModule

    @override
    def describe_vocabulary(self, sizes: VocabSizes) -> str:
        return f"vocabulary: {sizes.source} source and {sizes.target} target tokens"

    @override
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[Any, list[str]]:
        (dataset,), report = self._tokenize(config, tokenizers, [data], f"data.{split}")
        return dataset, list(report.format_lines())

    @override
    def tokenize_train(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, corpora: Sequence[ExampleSource]
    ) -> TrainData:
        datasets, report = self._tokenize(config, tokenizers, corpora, "data.train")
        fingerprints = [dataset.fingerprint() for dataset in datasets]
        return _mix(config, datasets, fingerprints, config.data.train.weights, report)

    @override
    def load_train(self, config: ExperimentConfig, prepared: PreparedDataset) -> TrainData:
        datasets = prepared.pair_datasets()
        fingerprints = [prepared.fingerprint] * len(datasets)
        weights = prepared.settings["corpus_weights"]
        return _mix(config, datasets, fingerprints, weights, prepared.filter_report())

    def _tokenize(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        corpora: Sequence[ExampleSource],
        location: str,
    ) -> tuple[list[InMemoryPairDataset], FilterReport]:
        filtering, example_format = config.data.filtering, self.example_format
        return tokenize_corpora(
            corpora, tokenizers, filtering, location=location, example_format=example_format
        )

    @override
    def worst_case_shapes(self, data_module: Any) -> list[BatchShape]:
        """Return the longest shape there can be, and those with the most target and source.

        Which of them needs the most memory depends on the model: logits grow with the target
        alone, self-attention with the square of a length.
        """
        dataset, config = data_module.train_pairs, data_module.recipe.training
        longest = _longest_shape(dataset.for_epoch(0))
        shapes = {longest}
        for spec, bucket, _ in epoch_batches(dataset, config.batching, seed=config.seed, epoch=0):
            if bucket >= _MAX_BUCKETS:
                break
            if spec.num_tokens > config.batching.max_tokens / 2:  # smaller batches are remainders
                shapes.add(BatchShape(spec.source_length, spec.target_length))

        most_target = max(shapes, key=lambda shape: (shape[1] / shape[0], sum(shape)))
        most_source = max(shapes, key=lambda shape: (shape[0] / shape[1], sum(shape)))
        return sorted({longest, most_target, most_source})

    @override
    def max_rows(self, data_module: Any) -> int:
        return min(len(data_module.train_pairs), data_module.recipe.training.batching.num_sorted)

    @override
    def mean_shape(self, batches: Sequence[Batch]) -> BatchShape:
        num_rows = sum(len(batch.targets) for batch in batches)
        num_targets = sum(batch.num_targets for batch in batches)
        num_sources = sum(batch.num_tokens for batch in batches) - num_targets
        return BatchShape(
            *(max(1, round(total / num_rows)) for total in (num_sources, num_targets))
        )

    @override
    def pad_batch(self, config: ExperimentConfig, batch: Batch) -> Batch:
        """Return the batch with as many rows as its lengths allow; added rows are padding."""
        num_rows = len(batch.targets)
        row_size = batch.sources.tokens.size(1) + batch.targets.size(1)
        missing = max(0, config.training.batching.max_tokens // row_size - num_rows)
        return map_tensors(lambda rows: pad(rows, (0, 0) * (rows.dim() - 1) + (0, missing)), batch)

    @override
    def dummy_batch(self, model: Any, sizes: VocabSizes, shape: BatchShape, rows: int) -> Batch:
        num_tokens = sizes.target
        if getattr(model, "points_to_source", False):  # targets are positions
            num_tokens = NUM_SPECIAL_TOKENS + shape.source_length
        targets = random_tokens(num_tokens, rows, shape.target_length)
        return Batch(random_sources(sizes.source, rows, shape.source_length), targets, targets)


def _mix(
    config: ExperimentConfig,
    datasets: Sequence[PairDataset],
    fingerprints: Sequence[str],
    weights: Sequence[float],
    report: FilterReport,
) -> TrainData:
    lines = list(report.format_lines())
    if len(datasets) == 1 and weights[0] == 1:
        return TrainData(datasets[0], fingerprints[0], lines)
    mixed = MixedDataset(datasets, weights, seed=config.training.seed)
    return TrainData(mixed, mixed.fingerprint(fingerprints), lines)


def _longest_shape(dataset: PairDataset) -> BatchShape:
    longest = np.zeros(2, dtype=np.int64)
    for start in range(0, len(dataset), _ROWS_PER_READ):
        rows = np.arange(start, min(start + _ROWS_PER_READ, len(dataset)))
        longest = np.maximum(
            longest, [lengths.max() + 1 for lengths in dataset.sequence_lengths(rows)]
        )
    return BatchShape(*(int(padded_lengths(int(length))[-1]) for length in longest))
