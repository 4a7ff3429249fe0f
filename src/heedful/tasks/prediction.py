"""The predictor interface.

Commands, `evaluate`, `show`, `compare` and Python use a trained model through `Predictor` alone: it
reads requests, predicts, streams and writes JSON.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, model_validator
from torch import Tensor, nn
from typing_extensions import TypeVar, override

from heedful.acceleration.registry import accelerate_for_inference, restore_plain
from heedful.attention.edits import AttentionEdit, edit_models
from heedful.config import BaseConfig, validate_settings
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.data.text_files import read_lines
from heedful.decoding.translation import BOS_LABEL, EOS_LABEL
from heedful.errors import DataError, check
from heedful.evaluation.base import Metric, MetricScore, compute_score
from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.expert_routing import name_tokens, trace_experts
from heedful.inspection.explanation import (
    Explanation,
    LayerChecks,
    best_tokens,
    check_reach,
    row_effects,
)
from heedful.pytree import map_tensors
from heedful.shapes import Float
from heedful.storage.json_files import read_json_integers
from heedful.tokenization.tokenizer_pair import TokenizerPair

_MAX_NUMBER = 1e30


class LoadedRun(NamedTuple):
    """Contents of a run folder."""

    folder: Path | str
    config: Any  # a recipe
    tokenizers: TokenizerPair
    model: nn.Module


RunLoader = Callable[[Path | str], LoadedRun]


class Prediction(Protocol):
    """The output of a model for one request."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def attention_map(self) -> AttentionMap | None: ...
    @property
    def attention_layers(self) -> Sequence[AttentionLayer]: ...
    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        ...


class PredictedText(NamedTuple):
    """A predicted text, for tasks whose predictions have nothing else."""

    text: str
    tokens: Sequence[str]
    attention_map: AttentionMap | None = None
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested
    num_prompt_tokens: int | None = None  # of the tokens, where a prompt was continued
    token_ids: Sequence[int] = ()  # as the model reads them
    source_tokens: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        fields: dict[str, Any] = {"text": self.text, "tokens": list(self.tokens)}
        if self.num_prompt_tokens is not None:
            fields["num_prompt_tokens"] = self.num_prompt_tokens
        return fields


RequestT = TypeVar("RequestT", default=Any)
ResultT = TypeVar("ResultT", bound=Prediction, default=Any)


class Trace(NamedTuple, Generic[ResultT]):
    """A prediction with attention layers, and what the model computed for it."""

    result: ResultT
    log_probs: Float[Tensor, "1 T N"] | None  # of all tokens at each step; None without such steps
    gates: Mapping[str, Sequence[Tensor]]  # of the experts, by path


class PredictionOptions(BaseConfig):
    """Settings of one call; a predictor without any has these."""

    model_config = ConfigDict(strict=True)  # "3" is no number, and 0 is not False

    @model_validator(mode="before")
    @classmethod
    def _read_integers(cls, values: Any) -> Any:
        return read_json_integers(values)


class Predictor(ABC, Generic[RequestT, ResultT]):
    """A trained model, or an ensemble, with all that it needs to predict.

    Invariant: the result of a request does not depend on the other requests; with sampling it
    depends on its index.
    """

    model: Any
    device: torch.device | str
    request_name: ClassVar[str] = "text"
    """Names a request in errors: "text:3"."""
    reads_files: ClassVar[bool] = False
    """Whether `show` gets names of files, whose requests are those of `read_file`."""
    supports_control: ClassVar[bool] = False
    """Whether `predict` has an argument `control`, a `RequestControl`; without it, results do not
    depend on the index of their request."""
    options_class: ClassVar[type[PredictionOptions]] = PredictionOptions
    """Settings of one call, such as the beam size."""
    input_schema: ClassVar[Mapping[str, Any]] = {"type": "string"}
    """JSON schema of what `parse_json` reads; the value may still make no sense."""
    ensemble_with: Sequence[Any] = ()
    """The other members of an ensemble whose predictions are averaged."""

    @property
    def models(self) -> dict[str, nn.Module]:
        """The model, or the members of an ensemble, by the prefix of their paths in edits."""
        return name_members([member.model for member in (self, *self.ensemble_with)])

    def with_models(self, models: Sequence[nn.Module]) -> Self:
        """Return a copy that predicts with these models, in the order of `models`."""
        first, *others = models
        copied = copy.copy(self)
        copied.model = first
        pairs = zip(self.ensemble_with, others, strict=True)
        copied.ensemble_with = [member.with_models([model]) for member, model in pairs]
        return copied

    def with_edits(self, edits: Sequence[AttentionEdit]) -> Self:
        """Return a copy with edited attention: plain models that share all parameters."""
        if not edits:
            return self
        plain = {prefix: restore_plain(model) for prefix, model in self.models.items()}
        return self.with_models(list(edit_models(plain, edits).values()))

    def parse_line(self, line: str) -> RequestT:
        """Return the request that a line of text is: by default the line."""
        return line  # type: ignore[return-value]

    def parse_json(self, value: Any) -> RequestT:
        """Return the request that a JSON value is: by default a string, as a line is."""
        return self.parse_line(check_json(value, str, "a text", '"a text"'))

    def parse_options(self, values: Mapping[str, Any]) -> PredictionOptions:
        """Return options by name; raise ConfigError for an unknown one."""
        return validate_settings(self.options_class, dict(values), location="options")

    def example(self) -> Any:
        """Return a JSON value that is a request."""
        return "an example"

    def to_json(self, result: ResultT, *, need_weights: bool = False) -> dict[str, Any]:
        """Return a result as JSON values, as the command of the task writes them by default."""
        return result.to_json()

    def read_file(self, path: str) -> Iterable[RequestT]:
        """Return the requests of a file: by default one per line."""
        return map(self.parse_line, read_lines(path))

    @abstractmethod
    def predict(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[ResultT]:
        """Predict in order, a bounded number of requests at a time.

        `options` are an instance of `options_class`. Errors name a request by location and index,
        which counts from `start_index`. With `need_layers` the results have the attention weights
        of each layer; models of running text then read the texts as they are.
        """

    def predict_texts(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        control: Any = None,
    ) -> Iterator[str]:
        """Yield only the texts of predictions, in a faster way if there is one."""
        keywords: Any = {"control": control} if self.supports_control else {}
        keywords |= {"location": location, "start_index": start_index}
        return (result.text for result in self.predict(requests, options, **keywords))

    def stream(self, request: RequestT, options: Any = None) -> Iterator[ResultT]:
        """Yield results as they grow; the last, by default the only one, is that of `predict`."""
        yield from self.predict([request], options)

    @property
    def streams_by_token(self) -> bool:
        """Whether `stream` yields more than the result."""
        return type(self).stream is not Predictor.stream

    def explain(
        self,
        request: RequestT,
        options: Any = None,
        *,
        edits: Sequence[AttentionEdit] = (),
        num_top: int = 5,
        need_effects: bool = True,
        effect_seconds: float = math.inf,
    ) -> Explanation:
        """Predict with edited attention; return layers, the best tokens of each step, and checks.

        The effects of rows, which need more time, are those of the layers that come with the
        prediction; after `effect_seconds` for a layer, those that are left are NaN.
        """
        edited = self.with_edits(edits)
        result, log_probs, gates = edited.trace(request, options)
        layers = result.attention_layers
        checks = [LayerChecks.from_layer(layer) for layer in layers]
        experts = name_tokens(gates, layers, eos_label=EOS_LABEL)
        check_reach(edits, self.models, layers, 0 if log_probs is None else log_probs.size(1))
        if log_probs is None:
            return Explanation(result, tuple(edits), layers, [], checks, experts)
        top = best_tokens(log_probs[0], num_top, partial(edited.token_names, request))
        if need_effects and len(edited.models) == 1:
            (plain,) = map(restore_plain, edited.models.values())

            def force(model: nn.Module, num_rows: int) -> Any:
                return edited.with_models([model]).force(request, result, num_rows)

            effects = [
                row_effects(plain, layer, log_probs[0], force, effect_seconds)
                if layer.is_default
                and layer.deferred is None
                and layer.queries.tokens[:1] != [BOS_LABEL]  # else row t is not of step t
                else None
                for layer in layers
            ]
            checks = [one._replace(effects=kl) for one, kl in zip(checks, effects, strict=True)]
        return Explanation(result, tuple(edits), layers, top, checks, experts)

    def predict_with_layers(self, request: RequestT, options: Any = None) -> ResultT:
        """Return a prediction with its attention layers."""
        return next(iter(self.predict([request], options, need_layers=True)))

    def trace(self, request: RequestT, options: Any = None) -> Trace[ResultT]:
        """Predict with attention layers; return what `force` does and the gates of experts, too."""
        result = self.predict_with_layers(request, options)
        with trace_experts(self.models) as gates:
            return Trace(result, self.force(request, result, 1), gates)

    def force(
        self, request: RequestT, result: ResultT, num_rows: int
    ) -> Float[Tensor, "R T N"] | None:
        """Predict each step of a result once more, in equal rows; None without such steps."""
        return None

    def token_names(self, request: RequestT, ids: Sequence[int]) -> list[str]:
        """Return how tokens that `force` predicts are shown."""
        raise NotImplementedError

    def evaluate(self, examples: Sequence[Any]) -> list[MetricScore]:
        """Return the scores that `evaluate` shows by default: by default, against references."""
        outputs = [result.text for result in self.predict(example.source for example in examples)]
        references = [example.references for example in examples]
        metrics = self.default_metrics(references)
        return [compute_score(metric, outputs, references) for metric in metrics]

    def default_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[Metric]:
        """Return the metrics that `evaluate` computes for these references."""
        raise NotImplementedError

    def count_tokens(self, examples: Sequence[Any]) -> int:
        """Return the number of tokens, or other targets, that `evaluate` predicts."""
        return len(examples)


class BatchPredictor(Predictor[RequestT, ResultT]):
    """A predictor of which only the prediction of a batch must be written."""

    batch_size: ClassVar[int] = 64

    @abstractmethod
    def predict_batch(
        self, requests: Sequence[RequestT], options: Any, *, need_layers: bool
    ) -> Iterable[ResultT]:
        """Return the result of each request."""

    def check_request(self, request: RequestT, location: str) -> None:
        """Raise DataError for a request that cannot be predicted."""

    @override
    def predict(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[ResultT]:
        stream, options = iter(requests), options or self.options_class()
        while batch := list(islice(stream, 1 if need_layers else self.batch_size)):
            for index, request in enumerate(batch, start_index):
                self.check_request(request, f"{location or self.request_name}:{index}")
            yield from self.predict_batch(batch, options, need_layers=need_layers)
            start_index += len(batch)


class TokenizedTextPredictor(BatchPredictor[RequestT, ResultT]):
    """A predictor whose model reads the tokens of whole texts."""

    def __init__(
        self, model: Any, tokenizers: TokenizerPair, *, device: torch.device | str = "cpu"
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.tokenizers = tokenizers
        self.device = device
        self.ensemble_with: Sequence[Self] = ()

    def encode(self, texts: Sequence[str]) -> tuple[list[list[int]], SourceBatch]:
        """Return the token ids of texts, and the inputs of the model."""
        ids = self.tokenizers.source.encode_batch(texts)
        return ids, map_tensors(lambda tensor: tensor.to(self.device), collate_sources(ids))


def name_members(models: Sequence[nn.Module]) -> dict[str, nn.Module]:
    """Return models by the prefix of their paths: `member.N.` if there are several."""
    is_ensemble = len(models) > 1
    return {f"member.{n}." if is_ensemble else "": model for n, model in enumerate(models)}


def check_json(value: Any, types: Any, noun: str, example: str) -> Any:
    """Return a JSON value; raise DataError if it is of another type."""
    is_valid = isinstance(value, types)
    message = f"must be {noun}, but is {short_repr(value)}"
    check(is_valid, "request", message, f"write {example}", DataError)
    return value


def parse_numbers(value: Any, *, is_byte: bool, noun: str, example: str) -> NDArray[Any]:
    """Return nested lists of numbers, or of bytes, as an array; raise DataError for others."""
    try:
        array = np.array(value)
    except ValueError:  # lists of unequal lengths
        array = np.empty(0)
    kinds, dtype, limit = ("iu", np.uint8, 255) if is_byte else ("iuf", np.float32, _MAX_NUMBER)
    lowest = 0 if is_byte else -limit
    is_valid = array.dtype.kind in kinds and array.size > 0
    is_valid = is_valid and lowest <= array.min() <= array.max() <= limit
    check_json(value if is_valid else None, list, noun, example)
    return array.astype(dtype)


def format_predictor(predictor: Any, *details: str) -> str:
    """Return the repr of a predictor, in one line."""
    name, model, parts = type(predictor).__name__, predictor.model, list(details)
    if isinstance(model, nn.Module):
        count = sum(parameter.numel() for parameter in model.parameters())
        parts.insert(0, f"{count:,} parameters")
    return f"<{name}: {', '.join([*parts, f'on {predictor.device}'])}>"
