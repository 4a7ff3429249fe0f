"""Predictors that search for an output text: the base of translator and captioner.

Requests are sorted by length within a window and batched for speed, and their results returned in
order. Invariant: the output of a request does not depend on the others; with sampling it depends on
the seed and its index.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypedDict, cast
from warnings import warn

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
from heedful.config import check_types
from heedful.data.text.batching import SourceBatch, collate_pairs
from heedful.decoding.config import DecodingConfig, check_search_tree
from heedful.decoding.forbidden_text import vocabulary_texts
from heedful.decoding.requests import EncodedRequest, Request, RequestControl, batch_requests
from heedful.decoding.strategies import DecodingOutput, DecodingStrategy, empty_output
from heedful.decoding.translation import BOS_LABEL
from heedful.errors import RunError, check, format_count
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    TokenAxis,
    collect_layers,
    encoder_axis,
    mark_output_layers,
)
from heedful.inspection.attention_trace import TraceRecord, trace_output
from heedful.models.base import DecodableModel, Seq2SeqModel
from heedful.models.copying import compute_copy_probs, find_copying_head
from heedful.models.ensembles import Ensemble, ensemble_members, replace_members
from heedful.pytree import map_tensors
from heedful.shapes import Float
from heedful.tasks.prediction import (
    LoadedRun,
    PredictionOptions,
    Predictor,
    RequestT,
    ResultT,
    name_members,
)
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import BOS

CopyProbs = list[NDArray[np.float32]]  # one array per hypothesis


CheckedCount = Annotated[int | None, Field(json_schema_extra={"minimum": 1})]
"""A count whose check, by `DecodingConfig`, has messages of its own."""


class SearchOptions(PredictionOptions):
    """Settings of one call; by default those of the run."""

    beam_size: CheckedCount = None
    """Hypotheses per request."""
    n_best: CheckedCount = None
    """Outputs per request."""
    need_tree: bool = False
    """Return the search tree, too."""


class SearchKeywords(TypedDict, total=False):
    """`SearchOptions` as keyword arguments."""

    beam_size: int | None
    n_best: int | None
    need_tree: bool


class RequestWindow(NamedTuple, Generic[RequestT]):
    """Requests that are encoded together, and how errors and notes name them."""

    requests: Sequence[RequestT]
    options: Any
    location: str
    start_index: int
    report: Callable[[str], None]  # is called with what is unusual about them


class SearchInputs(ABC, Generic[ResultT]):
    """A window of encoded requests: texts or images."""

    requests: Sequence[EncodedRequest]

    @abstractmethod
    def collate(self, batch: Sequence[EncodedRequest]) -> SourceBatch:
        """Return the inputs of the model."""

    @abstractmethod
    def axes(self, request: EncodedRequest, tokens: Sequence[int]) -> tuple[TokenAxis, TokenAxis]:
        """Return source and output as they are shown beside attention weights."""

    @abstractmethod
    def build(
        self,
        request: EncodedRequest,
        output: DecodingOutput,
        copy_probs: CopyProbs | None,
        layers: Sequence[AttentionLayer],
    ) -> ResultT:
        """Return the result of a request."""


class SearchPredictor(Predictor[RequestT, ResultT]):
    """A trained model, or an ensemble, with its tokenizers and decoding settings."""

    options_class = SearchOptions
    supports_control = True
    window_size: ClassVar[int]
    """Requests that are sorted by length together."""

    def __init__(
        self,
        model: DecodableModel,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        if isinstance(model, nn.Module):  # the members of an ensemble are accelerated already
            model = accelerate_for_inference(model, device)
        self.model = model
        self.tokenizers = tokenizers
        self.decoding = config
        self.device = device

    @property
    @override
    def models(self) -> dict[str, nn.Module]:
        members = ensemble_members(self.model)
        return name_members([member for member in members if isinstance(member, nn.Module)])

    @override
    def with_models(self, models: Sequence[nn.Module]) -> Self:
        copied = copy.copy(self)
        copied.model = replace_members(self.model, cast(Sequence[DecodableModel], models))
        return copied

    @check_types
    def score(self, pairs: Sequence[tuple[str, str]]) -> list[ResultT]:
        """Score given outputs, as if a search had found them: pairs of a request and its output."""
        requests: Any = (Request(text, target=target) for text, target in pairs)
        return list(self.predict(requests))

    @property
    def _copying_models(self) -> list[nn.Module]:
        return [model for model in self.models.values() if find_copying_head(model)]

    @abstractmethod
    def encode(self, window: RequestWindow[RequestT]) -> SearchInputs[ResultT]:
        """Encode a window of requests."""

    @override
    def predict(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
        report: Callable[[str], None] = warn,
        control: RequestControl | None = None,
    ) -> Iterator[ResultT]:
        options = options or self.options_class()
        strategy = self._build_strategy(options, control)
        named = location or self.request_name
        for inputs in self._encode_windows(requests, options, named, start_index, report):
            yield from self._decode(
                inputs, inputs.requests, strategy, options.need_tree, need_layers=need_layers
            )

    @override
    def stream(self, request: RequestT, options: Any = None) -> Iterator[ResultT]:
        """Yield what is decided of the output, as it grows.

        MBR decoding chooses among whole outputs, and of several samples the first may be left out:
        these, and scores of given outputs, come at once.
        """
        options = options or self.options_class()
        strategy = self._build_strategy(options)
        inputs = self.encode(RequestWindow([request], options, self.request_name, 1, warn))
        (encoded,) = inputs.requests
        is_growing = decides_token_by_token(strategy.config) and encoded.target is None
        if not is_growing or encoded.is_empty:
            yield from self._decode(inputs, inputs.requests, strategy, options.need_tree)
            return
        for output in strategy.stream(encoded, inputs.collate, need_tree=options.need_tree):
            yield inputs.build(encoded, output, None, ())
        if self._copying_models:
            (copy_probs,) = self._copy_probs([encoded], [output])
            yield inputs.build(encoded, output, copy_probs, ())

    @property
    @override
    def streams_by_token(self) -> bool:
        return decides_token_by_token(self.decoding)

    @override
    def count_tokens(self, examples: Sequence[Any]) -> int:
        """Return the number of tokens of all references, EOS included."""
        texts = [text for example in examples for text in example.references]
        return sum(len(ids) + 1 for ids in self.tokenizers.target.encode_batch(texts))

    def _build_strategy(
        self, options: SearchOptions, control: RequestControl | None = None
    ) -> DecodingStrategy:
        sizes = {"beam_size": options.beam_size, "n_best": options.n_best}
        config = self.decoding.with_beam_size(**sizes)
        if options.need_tree:
            check_search_tree(config, "need_tree")
        return DecodingStrategy(
            self.model, config, tokenizers=self.tokenizers, device=self.device, control=control
        )

    def _encode_windows(
        self,
        requests: Iterable[RequestT],
        options: Any,
        location: str,
        start_index: int,
        report: Callable[[str], None],
    ) -> Iterator[SearchInputs[ResultT]]:
        stream = iter(requests)
        while window := list(islice(stream, self.window_size)):
            yield self.encode(RequestWindow(window, options, location, start_index, report))
            start_index += len(window)

    def _decode(
        self,
        inputs: SearchInputs[ResultT],
        requests: Sequence[EncodedRequest],
        strategy: DecodingStrategy,
        need_tree: bool = False,
        *,
        need_layers: bool = False,
    ) -> Iterator[ResultT]:
        """Decode some requests of a window."""
        outputs: dict[int, tuple[DecodingOutput, CopyProbs | None]] = {}
        for whole_batch in batch_requests(requests, strategy.config):
            batch = [request for request in whole_batch if not strategy.is_cancelled(request)]
            if not batch:
                continue
            decoded = strategy.decode(batch, inputs.collate, need_tree=need_tree)
            indices = (request.request_index for request in batch)
            probs = self._copy_probs(batch, decoded)
            outputs.update(zip(indices, zip(decoded, probs, strict=True), strict=True))
        for request in requests:
            if request.request_index not in outputs:
                yield inputs.build(request, empty_output(request, need_tree=need_tree), None, ())
                continue
            output, copy_probs = outputs[request.request_index]
            layers: Sequence[AttentionLayer] = ()
            if need_layers:
                best_copy_probs = None if copy_probs is None else copy_probs[0].tolist()
                layers = self._trace(inputs, request, output.hypotheses[0].tokens, best_copy_probs)
            yield inputs.build(request, output, copy_probs, layers)

    def _copy_probs(
        self, requests: Sequence[EncodedRequest], outputs: Sequence[DecodingOutput]
    ) -> list[CopyProbs | None]:
        """Decode outputs once more, with teacher forcing; the mean over the members that copy."""
        copying_models = self._copying_models
        if not copying_models:
            return [None] * len(outputs)
        pairs = [
            (request.source, hypothesis.tokens)
            for request, output in zip(requests, outputs, strict=True)
            for hypothesis in output.hypotheses
        ]
        batch = map_tensors(lambda tensor: tensor.to(self.device), collate_pairs(pairs))
        member_probs = [compute_copy_probs(model, batch) for model in copying_models]
        mean = torch.stack([item for item in member_probs if item is not None]).mean(dim=0)
        rows = zip(mean.float().cpu().numpy(), pairs, strict=True)
        hypothesis_probs = iter([row[: len(tokens)] for row, (_, tokens) in rows])
        return [list(islice(hypothesis_probs, len(output.hypotheses))) for output in outputs]

    @torch.inference_mode()
    def _trace(
        self,
        inputs: SearchInputs[ResultT],
        request: EncodedRequest,
        tokens: list[int],
        copy_probs: list[float] | None,
    ) -> Sequence[AttentionLayer]:
        """Return the attention of each layer while it decodes an output."""
        if not tokens:
            return ()
        layers: list[AttentionLayer] = []
        for prefix, model in self.models.items():
            assert isinstance(model, Seq2SeqModel), type(model)
            records = trace_output(model, inputs.collate([request]), tokens, self.device)
            axes_of = self._axes(inputs, request, tokens, copy_probs)
            member_layers = mark_output_layers(
                collect_layers(records, axes_of), getattr(model, "decoder", None)
            )
            is_alone = not prefix  # the attention of an ensemble is the mean, that of no layer
            layers += [
                layer._replace(path=prefix + layer.path, is_default=layer.is_default and is_alone)
                for layer in member_layers
            ]
        return layers

    def _axes(
        self,
        inputs: SearchInputs[ResultT],
        request: EncodedRequest,
        tokens: list[int],
        copy_probs: list[float] | None,
    ) -> Callable[[TraceRecord], Axes | None]:
        """Return the function that names the axes of a record."""
        source, target = inputs.axes(request, tokens)
        target = target._replace(copy_probs=copy_probs)
        target_inputs = target.shift_right(BOS_LABEL)

        def axes_of(record: TraceRecord) -> Axes | None:
            part = record.module_path.partition(".")[0]
            num_queries, num_keys = record.weights.shape[2:]
            if record.role in ("cross", "copy"):
                return record.role, target, source
            if part == "encoder":
                tokens = encoder_axis(record, source, bos_label=BOS_LABEL)
                return f"encoder-{record.role}", tokens, tokens
            if part == "decoder":
                return f"decoder-{record.role}", target, target_inputs
            # One stack reads the source, then the target with the source.
            if record.role == "self" and num_queries == num_keys == len(source.tokens):
                return "source-self", source, source
            return record.role, target, source.followed_by(target_inputs)

        return axes_of

    @torch.inference_mode()
    @override
    def force(self, request: RequestT, result: ResultT, num_rows: int) -> Float[Tensor, "R T N"]:
        """Predict each token of a result, and EOS."""
        options = self.options_class()
        inputs = self.encode(RequestWindow([request], options, self.request_name, 1, warn))
        sources = inputs.collate(list(inputs.requests) * num_rows)
        state = self.model.initial_state(
            map_tensors(lambda tensor: tensor.to(self.device), sources)
        )
        log_probs = []
        for token in (BOS, *result.token_ids):  # type: ignore[attr-defined]
            step = self.model.step(torch.full((num_rows,), token, device=self.device), state)
            log_probs.append(step.log_probs)
            state = step.state
        return torch.stack(log_probs, dim=1)


def decides_token_by_token(config: DecodingConfig) -> bool:
    """Whether outputs are known from their beginning on, before they are whole."""
    return config.mbr is None and (config.sampling is None or config.n_best == 1)


def combine_models(members: Sequence[LoadedRun], device: torch.device) -> DecodableModel:
    """Join the models of runs, whose source and target vocabularies must be equal."""
    models: list[DecodableModel] = []
    expected = members[0].tokenizers
    for folder, config, tokenizers, model in members:
        if not isinstance(model, Seq2SeqModel):
            message = f"this run is a {config.model.type}, not a translation model"
            raise RunError(str(folder), message, "leave it out")
        for side, first, other in zip(expected._fields, expected, tokenizers, strict=True):
            difference = first_difference(first, other)
            message = f"its {side} vocabulary differs: {difference}"
            hint = "use runs that were trained with the same tokenizers"
            check(not difference, str(folder), message, hint, RunError)
        models.append(accelerate_for_inference(model, device))
    averaging = members[0].config.decoding.ensemble_averaging
    return Ensemble(models, averaging) if len(models) > 1 else models[0]


def first_difference(expected: Tokenizer, other: Tokenizer) -> str:
    """Return how two vocabularies differ; empty if they are equal."""
    if other is expected:
        return ""
    if type(expected) is not type(other):
        return f"the tokenizer is {type(other).__name__}, not {type(expected).__name__}"
    expected_tokens, other_tokens = vocabulary_texts(expected), vocabulary_texts(other)
    for index, (token, other_token) in enumerate(zip(expected_tokens, other_tokens, strict=False)):
        if token != other_token:
            return f"token {index} is {other_token!r}, not {token!r}"
    if len(expected_tokens) != len(other_tokens):
        return f"it has {format_count(len(other_tokens), 'token')}, not {len(expected_tokens)}"
    return ""
