"""Tasks on running text: one long row of tokens, cut into windows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
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
    LMBatchingConfig,
    LMBatchStream,
    Tokens,
    TokenStream,
    concatenate_lines,
    overlapping_windows,
    tokens_fingerprint,
)
from heedful.decoding.translation import BOS_LABEL, TokenTextMapper, token_axis
from heedful.errors import ConfigError, check, format_count
from heedful.evaluation.base import Direction
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    TokenAxis,
    collect_layers,
    encoder_axis,
)
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.shapes import Float
from heedful.tasks.command_line import TEXT_FILES, Split
from heedful.tasks.evaluation import DevEvaluator, Evaluation
from heedful.tasks.prediction import (
    LoadedRun,
    PredictedText,
    Predictor,
    RunLoader,
    format_predictor,
)
from heedful.tasks.task import Task
from heedful.tasks.task_data import (
    BatchShape,
    DataModule,
    ExperimentConfig,
    TaskData,
    TrainData,
    VocabSizes,
    random_tokens,
)
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig, TokenizerPair
from heedful.tokenization.vocabulary import EOS, UNK
from heedful.training.objectives import check_objective_supported


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
    data_module = TextDataModule

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
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[Tokens, list[str]]:
        lines = data.examples
        tokens = concatenate_lines(lines, tokenizers.target)
        return tokens, [_format_size(len(lines), len(tokens), int((tokens == UNK).sum()))]

    @override
    def tokenize_train(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, corpora: Sequence[ExampleSource]
    ) -> TrainData:
        tokens, report = self.build_dataset(config, tokenizers, corpora[0], "train")
        return TrainData(tokens, tokens_fingerprint(tokens), report)

    @override
    def load_train(self, config: ExperimentConfig, prepared: PreparedDataset) -> TrainData:
        tokens = ShardedTokenStream(prepared.shards)
        num_lines, num_unknown = map(prepared.total_count, ("lines", "unknown"))
        report = _format_size(num_lines, len(tokens), num_unknown)
        return TrainData(tokens, prepared.fingerprint, [report])

    @override
    def worst_case_shapes(self, data_module: TextDataModule) -> list[BatchShape]:
        return [BatchShape(0, _window_length(data_module))]

    @override
    def max_rows(self, data_module: TextDataModule) -> int:
        return max(1, len(data_module.train) // _window_length(data_module))

    @override
    def dummy_batch(self, model: Any, sizes: VocabSizes, shape: BatchShape, rows: int) -> LMBatch:
        tokens = random_tokens(sizes.target, rows, shape.target_length)
        return LMBatch(tokens, tokens)


def _window_length(data_module: TextDataModule) -> int:
    return min(data_module.recipe.data.lm_batching.context_length, len(data_module.train) - 1)


def _format_size(num_lines: int, num_tokens: int, num_unknown: int) -> str:
    """Describe the size of a text; the EOS before the first line is not counted."""
    unknown = f", {num_unknown} of them unknown" if num_unknown else ""
    return f"{format_count(num_lines, 'line')}, {format_count(num_tokens - 1, 'token')}{unknown}"


_LINE_END = "\u21b5"  # how EOS is shown


def display_tokens(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return tokens of running text as they are shown."""
    labeled_ids = zip(ids, tokenizer.ids_to_tokens(ids), strict=True)
    return [_LINE_END if token == EOS else text for token, text in labeled_ids]


class TextPredictor(Predictor[str, PredictedText]):
    """A trained model of running text with its tokenizer."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        lm_batching: LMBatchingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.tokenizer = tokenizer
        self.lm_batching = lm_batching
        self.device = device
        self._texts = TokenTextMapper(tokenizer)

    @torch.inference_mode()
    def _trace(
        self, inputs: Sequence[int], queries: TokenAxis, keys: TokenAxis
    ) -> tuple[list[AttentionLayer], Float[Tensor, "1 T N"]]:
        """Read token ids; return the attention of each layer, and what is predicted."""
        tokens = torch.tensor([inputs], device=self.device)
        with trace_attention(self.model, device="cpu") as records:
            log_probs = self.model(LMBatch(tokens, tokens)).log_probs

        def axes_of(record: TraceRecord) -> Axes:
            axes = [encoder_axis(record, axis, bos_label=BOS_LABEL) for axis in (queries, keys)]
            return record.role, axes[0], axes[1]

        return collect_layers(records, axes_of, default="self"), log_probs

    @torch.inference_mode()
    @override
    def force(
        self, request: str, result: PredictedText, num_rows: int
    ) -> Float[Tensor, "R T N"] | None:
        """Read the tokens once more, as in the traces of `attention_layers`."""
        inputs = torch.tensor([self._inputs(result.token_ids)] * num_rows, device=self.device)
        return self.model(LMBatch(inputs, inputs)).log_probs if inputs.size(1) else None

    def _inputs(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens of a text that the model reads at once."""
        return ids

    @override
    def token_names(self, request: str, ids: Sequence[int]) -> list[str]:
        return display_tokens(ids, self.tokenizer)

    def _token_axis(self, ids: Sequence[int]) -> TokenAxis:
        tokens, texts = display_tokens(ids, self.tokenizer), self._texts.token_texts(ids)
        return token_axis(tokens, texts)

    def __repr__(self) -> str:
        context = f"context of {format_count(self.lm_batching.context_length, 'token')}"
        return format_predictor(self, f"vocabulary {len(self.tokenizer)}", context)

    @override
    def count_tokens(self, examples: Sequence[str]) -> int:
        """Return the number of tokens of a text; the EOS before its first line is not counted."""
        return len(concatenate_lines(examples, self.tokenizer)) - 1


class NoDevPredictions(DevEvaluator):
    """Predicts nothing: all metrics of running text come from `batch_sums`."""

    @override
    def choose_examples(self) -> Sequence[Any]:
        return ()


class TextEvaluation(Evaluation):
    """The evaluation of models of running text."""

    dev_evaluator: ClassVar[type[DevEvaluator]] = NoDevPredictions
    metrics: ClassVar[Mapping[str, MetricSpec]] = {"loss": LOSS, "accuracy": ACCURACY}
    # Per token, only models with equal tokenizers compare; so words and characters come first.
    compared_scores: ClassVar[Mapping[str, Direction]] = {
        "perplexity per word": "lower",
        "bits per character": "lower",
        "perplexity per character": "lower",
        "perplexity per token": "lower",
        "nats per token": "lower",
        "token accuracy": "higher",
    }


class TextTask(Task):
    """A task of models of running text."""

    data = TextData()
    evaluation = TextEvaluation()

    @override
    def check_config(self, config: ExperimentConfig) -> None:
        check_objective_supported(config.training.objective, config.model.type)
        super().check_config(config)

    @override
    def combine_runs(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Predictor:
        """Return the predictor of the only run; others need a model with sources."""
        first, *others = members
        model_type = first.config.model.type
        if others:
            message = f"a {model_type} cannot be combined with {others[0].folder}"
            hint = "only translation models, classifiers and taggers form ensembles: give one run"
            raise ConfigError("ensemble_with", message, hint)
        fusion, hint = first.config.decoding.shallow_fusion, "remove decoding.shallow_fusion"
        message = f"works only with translation models, but this is a {model_type}"
        check(fusion is None, "decoding.shallow_fusion.run", message, hint)
        return self.build_predictor(first, device)
