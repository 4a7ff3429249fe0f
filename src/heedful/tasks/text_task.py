"""Tasks on running text: one long row of tokens, cut into windows."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.token_stream import (
    LMBatch,
    LMBatchingConfig,
    concatenate_lines,
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
    mark_default,
)
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import Predictor, format_predictor
from heedful.tasks.task import LoadedRun, Task
from heedful.tasks.task_data import ExperimentConfig
from heedful.tasks.text_data import TextData
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import EOS
from heedful.training.objectives import check_objective_supported

_LINE_END = "\u21b5"  # how EOS is shown


def display_tokens(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return tokens of running text as they are shown."""
    shown = zip(ids, tokenizer.ids_to_tokens(ids), strict=True)
    return [_LINE_END if token == EOS else text for token, text in shown]


class PredictedText(NamedTuple):
    """A text that a model continued or completed."""

    text: str
    tokens: Sequence[str]
    attention_map: None = None
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested
    num_prompt_tokens: int | None = None  # of the tokens, where a prompt was continued

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        fields: dict[str, Any] = {"text": self.text, "tokens": list(self.tokens)}
        if self.num_prompt_tokens is not None:
            fields["num_prompt_tokens"] = self.num_prompt_tokens
        return fields


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
    ) -> list[AttentionLayer]:
        """Return the attention of each layer while the model reads token ids."""
        tokens = torch.tensor([inputs], device=self.device)
        with trace_attention(self.model, device="cpu") as records:
            self.model(LMBatch(tokens, tokens))

        def axes_of(record: TraceRecord) -> Axes:
            axes = [encoder_axis(record, axis, bos_label=BOS_LABEL) for axis in (queries, keys)]
            return record.role, axes[0], axes[1]

        layers = collect_layers(records, axes_of)
        return mark_default(layers, "self")

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


class TextEvaluation(Evaluation):
    """The evaluation of models of running text."""

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

    @staticmethod
    def single_run(members: Sequence[LoadedRun]) -> LoadedRun:
        """Return the only run; ensembles and shallow fusion need a model with sources."""
        first, *others = members
        model_type = first.config.model.type
        if others:
            message = f"a {model_type} cannot be combined with {others[0].folder}"
            hint = "only translation models, classifiers and taggers form ensembles: give one run"
            raise ConfigError("ensemble_with", message, hint)
        fusion, hint = first.config.decoding.shallow_fusion, "remove decoding.shallow_fusion"
        message = f"works only with translation models, but this is a {model_type}"
        check(fusion is None, "decoding.shallow_fusion.run", message, hint)
        return first
