"""Data of running text: one long row of tokens, cut into windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor
from heedful.data.sources import SyntheticTextConfig, TextColumnConfig, TextFilesConfig
from heedful.data.text.example_formats import LINES, ExampleSource
from heedful.data.text.sharded_dataset import (
    PreparedDataConfig,
    PreparedDataset,
    ShardedTokenStream,
)
from heedful.data.text.token_stream import (
    LMBatch,
    LMBatchStream,
    Tokens,
    TokenStream,
    concatenate_lines,
    overlapping_windows,
    tokens_fingerprint,
)
from heedful.errors import check, format_count
from heedful.tasks.command_line import TEXT_FILES
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
from heedful.tokenization.vocabulary import UNK


@dataclass(eq=False)
class TextDataModule(DataModule):
    """Running text, of which each token predicts the next."""

    train: TokenStream
    dev: Tokens

    @override
    def train_batches(self, cursor: DataCursor) -> LMBatchStream:
        batching, seed = self.recipe.data.lm_batching, self.recipe.training.seed
        return LMBatchStream(self.train, batching, seed=seed, cursor=cursor)

    @override
    def validation_batches(self) -> Iterator[LMBatch]:
        return overlapping_windows(self.dev, self.recipe.data.lm_batching)


class TextData(TaskData):
    """The lines of a running text."""

    example_format = LINES
    source_configs = (TextFilesConfig, TextColumnConfig, SyntheticTextConfig)
    train_source_configs = (PreparedDataConfig,)
    file_options = TEXT_FILES
    batch_size_setting = "data.lm_batching.batch_size"
    batch_size_unit = "streams"
    data_module_class: type[TextDataModule] = TextDataModule

    @override
    def check(self, config: ExperimentConfig) -> None:
        super().check(config)
        tokenizers = config.tokenizers
        message = f"a {config.model.type} has one tokenizer, but this is '{tokenizers.type}'"
        example = "`tokenizers: {type: shared, tokenizer: {type: character}}`"
        is_shared = isinstance(tokenizers, SharedTokenizerConfig)
        check(is_shared, "tokenizers.type", message, f"set {example}, or another tokenizer")
        regularization = getattr(tokenizers.tokenizer, "subword_regularization", None)
        location = "tokenizers.tokenizer.subword_regularization"
        message = "works only with pairs of texts: running text is tokenized once"
        check(regularization is None, location, message, "remove it")

    @override
    def describe_vocabulary(self, sizes: VocabSizes) -> str:
        return f"vocabulary: {sizes.target} tokens"

    @override
    def tokenize_train(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        corpora: Sequence[ExampleSource],
    ) -> TrainData:
        tokens, report = _tokenize(corpora[0].examples, tokenizers)
        return TrainData(tokens, tokens_fingerprint(tokens), [report])

    @override
    def load_train(self, config: ExperimentConfig, prepared: PreparedDataset) -> TrainData:
        tokens = ShardedTokenStream(prepared.shards)
        num_lines, num_unknown = map(prepared.total_count, ("lines", "unknown"))
        report = _format_size(num_lines, len(tokens), num_unknown)
        return TrainData(tokens, prepared.fingerprint, [report])

    @override
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> TextDataModule:
        tokens, report = _tokenize(dev.examples, tokenizers)
        return self.data_module_class(
            config, tokenizers, train.dataset, tokens, train.fingerprint, [report]
        )

    @override
    def row_size(self, shape: BatchShape) -> int:
        return 1

    @override
    def worst_case_shapes(self, data_module: TextDataModule) -> list[BatchShape]:
        return [BatchShape(0, _window_length(data_module))]

    @override
    def max_rows(self, data_module: TextDataModule) -> int:
        return max(1, len(data_module.train) // _window_length(data_module))

    @override
    def mean_shape(self, batches: Sequence[LMBatch]) -> BatchShape:
        num_rows = sum(len(batch.targets) for batch in batches)
        num_tokens = sum(batch.num_tokens for batch in batches)
        return BatchShape(0, max(1, round(num_tokens / num_rows)))

    @override
    def dummy_batch(
        self,
        model: BaseConfig,
        sizes: VocabSizes,
        shape: BatchShape,
        rows: int,
        device: torch.device | str = "cpu",
    ) -> LMBatch:
        tokens = random_tokens(sizes.target, rows, shape.target_length, device)
        return LMBatch(tokens, tokens)


def _window_length(data_module: TextDataModule) -> int:
    return min(data_module.recipe.data.lm_batching.context_length, len(data_module.train) - 1)


def _tokenize(lines: Sequence[str], tokenizers: TokenizerPair) -> tuple[Tokens, str]:
    tokens = concatenate_lines(lines, tokenizers.target)
    return tokens, _format_size(len(lines), len(tokens), int((tokens == UNK).sum()))


def _format_size(num_lines: int, num_tokens: int, num_unknown: int) -> str:
    """Describe the size of a text; the EOS before the first line is not counted."""
    unknown = f", {num_unknown} of them unknown" if num_unknown else ""
    return f"{format_count(num_lines, 'line')}, {format_count(num_tokens - 1, 'token')}{unknown}"
