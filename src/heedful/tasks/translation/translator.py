"""The translator: a trained model, or an ensemble, with its tokenizers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, overload
from warnings import warn

import torch
from torch import nn
from typing_extensions import Unpack, override

from heedful.acceleration import ct2
from heedful.acceleration.precision import Int8Linear
from heedful.config import check_types
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import (
    EncodedRequest,
    Request,
    RequestControl,
    RequestEncoder,
    TooLong,
    batch_requests,
    to_request,
)
from heedful.decoding.strategies import DecodingOutput
from heedful.decoding.translation import Translation, TranslationBuilder, display_outputs
from heedful.errors import check
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import DEFAULT_METRICS, get_metrics
from heedful.inspection.attention_layers import AttentionLayer, TokenAxis
from heedful.models.base import DecodableModel
from heedful.tasks.prediction import check_json, format_predictor
from heedful.tasks.search_predictor import (
    CopyProbs,
    RequestWindow,
    SearchInputs,
    SearchKeywords,
    SearchOptions,
    SearchPredictor,
)
from heedful.tasks.translation.files import REQUEST_SCHEMA, check_constraints
from heedful.tokenization.tokenizer_pair import TokenizerPair

_LOCATION = "--backend"
_SETTINGS = (  # that must be at their defaults
    *("n_best", "coverage_penalty", "diversity", "pruning", "min_length", "min_length_ratio"),
    *("sampling", "mbr", "no_repeat_ngram_size", "repetition_penalty", "required_phrases"),
    *("forbidden_phrases", "unk_replacement", "suppress_tokens", "forced_bos_token_id"),
)


class TextBackend:
    """Finds best outputs through CTranslate2, if the settings choose it and the model allows it."""

    def __init__(self, model: object, config: DecodingConfig, device: torch.device | str) -> None:
        self._model, self._device = model, torch.device(device)
        self._search: ct2.CTranslate2Search | None = None
        self._is_required = config.backend == "ct2"
        reason = self._why_unavailable()
        hint = "pip install 'heedful[ct2]'" if not ct2.is_installed() else "leave it out"
        check(not self._is_required or reason is None, _LOCATION, reason or "", hint)
        self.is_available = config.backend != "torch" and reason is None

    def find_best(
        self, requests: Sequence[EncodedRequest], config: DecodingConfig
    ) -> list[list[int] | None]:
        """Return the tokens of each output, or None where our own search must find them."""
        setting = _unsupported_setting(config)
        message = f"CTranslate2 does not have decoding.{setting} as we define it"
        check(not self._is_required or setting is None, _LOCATION, message, "leave out one of both")
        options = ct2.BeamOptions(
            config.beam_size, config.length_penalty.build(), config.stopping.build()
        )
        can_search = self.is_available and setting is None
        is_free = not any(
            request.target is not None or request.request.has_constraints for request in requests
        )
        if not can_search or not is_free or not (self._is_required or self._is_exact(options)):
            return [None] * len(requests)
        if self._search is None:
            compute_type = "int8" if self._is_int8 else "float32"
            self._search = ct2.CTranslate2Search(self._model, compute_type=compute_type)  # type: ignore[arg-type]
        sources = [request.source for request in requests]
        return self._search.find_best(
            sources, [request.max_length for request in requests], options
        )

    def _is_exact(self, options: ct2.BeamOptions) -> bool:
        return options.is_exact and not self._is_int8

    @property
    def _is_int8(self) -> bool:
        modules = self._model.modules() if isinstance(self._model, nn.Module) else ()
        return any(isinstance(module, Int8Linear) for module in modules)

    def _why_unavailable(self) -> str | None:
        if not ct2.is_installed():
            return "CTranslate2 is not installed"
        if self._device.type != "cpu":
            return f"CTranslate2 runs on the CPU here, but the device is {self._device.type!r}"
        if not isinstance(self._model, nn.Module):
            return "CTranslate2 cannot run an ensemble or shallow fusion"
        if any(parameter.dtype != torch.float32 for parameter in self._model.parameters()):
            return "CTranslate2 runs in fp32 or int8 here"
        reason = ct2.unsupported_reason(self._model)
        return reason and f"CTranslate2 cannot run this model: {reason}"


def _unsupported_setting(config: DecodingConfig) -> str | None:
    """Return the first setting that CTranslate2 does not have, or defines in another way."""
    default = DecodingConfig()
    changed = (name for name in _SETTINGS if getattr(config, name) != getattr(default, name))
    return next(changed, None)


class TranslationOptions(SearchOptions):
    """Settings of one call; by default those of the run."""

    too_long: TooLong = "error"
    """What happens to a text of more than `decoding.max_source_length` tokens."""


class TranslationKeywords(SearchKeywords, total=False):
    """`TranslationOptions` as keyword arguments."""

    too_long: TooLong


@dataclass
class TextInputs(SearchInputs[Translation]):
    """Texts to translate."""

    requests: Sequence[EncodedRequest]
    builder: TranslationBuilder

    @override
    def collate(self, batch: Sequence[EncodedRequest]) -> SourceBatch:
        return collate_sources([request.source for request in batch])

    @override
    def axes(self, request: EncodedRequest, tokens: Sequence[int]) -> tuple[TokenAxis, TokenAxis]:
        return self.builder.token_axes(request, tokens)

    @override
    def build(
        self,
        request: EncodedRequest,
        output: DecodingOutput,
        copy_probs: CopyProbs | None,
        layers: Sequence[AttentionLayer],
    ) -> Translation:
        translation = self.builder.build(request, output, copy_probs)
        return translation._replace(attention_layers=layers)


class Translator(SearchPredictor[str | Request, Translation]):
    """A trained model with its tokenizers and decoding settings."""

    options_class = TranslationOptions
    input_schema: ClassVar[Mapping[str, Any]] = {"anyOf": [{"type": "string"}, REQUEST_SCHEMA]}
    window_size = 1024

    def __init__(
        self,
        model: DecodableModel,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, tokenizers, config, device=device)
        self._text_backend = TextBackend(self.model, config, device)
        self._request_encoder = RequestEncoder(tokenizers, config)
        self._translation_builder = TranslationBuilder(tokenizers, config)

    def __repr__(self) -> str:
        sizes = f"vocabulary {len(self.tokenizers.source)} to {len(self.tokenizers.target)}"
        return format_predictor(self, sizes, f"beam size {self.decoding.beam_size}")

    @property
    def has_text_backend(self) -> bool:
        """Whether `predict_texts` finds some or all outputs in another way than `predict`."""
        return self._text_backend.is_available

    @override
    def parse_json(self, value: Any) -> str | Request:
        """Return a text, or an object with `text`, constraints and `target` as a request."""
        if not isinstance(value, dict):
            return super().parse_json(value)
        others = dict(value)
        text = check_json(others.pop("text", None), str, "an object with a text", '{"text": ""}')
        target = others.pop("target", None)
        check_json(target, str | None, "an object whose target is a text", '{"target": ""}')
        return Request(text, target=target, **check_constraints(others, "request"))

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self, texts: str | Request, **options: Unpack[TranslationKeywords]
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: Iterable[str | Request], **options: Unpack[TranslationKeywords]
    ) -> list[Translation]: ...
    @check_types
    def translate(
        self,
        texts: str | Request | Iterable[str | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
        too_long: TooLong = "error",
    ) -> Translation | list[Translation]:
        """Translate a text, or texts; an empty text without constraints has an empty output.

        Texts of more than `decoding.max_source_length` tokens are an error, or, with a warning,
        `too_long="skip"` gives them an empty output, and `"cut"` translates their beginning.
        """
        is_one = isinstance(texts, str | Request)
        options = TranslationOptions(
            beam_size=beam_size, n_best=n_best, need_tree=need_tree, too_long=too_long
        )
        results = self.predict([texts] if isinstance(texts, str | Request) else texts, options)
        return next(results) if is_one else list(results)

    @override
    def to_json(self, result: Translation, *, need_weights: bool = False) -> dict[str, Any]:
        return result.to_json(weights=need_weights, tree=True)

    @override
    def predict_texts(
        self,
        requests: Iterable[str | Request],
        options: TranslationOptions | None = None,
        *,
        location: str = "",
        start_index: int = 1,
        report: Callable[[str], None] = warn,
        control: RequestControl | None = None,
    ) -> Iterator[str]:
        """Yield only the texts of translations, from the backend that the settings choose."""
        options = options or TranslationOptions()
        strategy, named = self._build_strategy(options, control), location or self.request_name
        for inputs in self._encode_windows(requests, options, named, start_index, report):
            empty = (request for request in inputs.requests if request.is_empty)
            texts = {request.request_index: "" for request in empty}
            live = [request for request in inputs.requests if not strategy.is_cancelled(request)]
            for batch in batch_requests(live, strategy.config):
                outputs = self._text_backend.find_best(batch, strategy.config)
                for request, tokens in zip(batch, outputs, strict=True):
                    if tokens is not None:
                        text = self._translation_builder.build_text(request, tokens)
                        texts[request.request_index] = text
            rest = [request for request in inputs.requests if request.request_index not in texts]
            translations = self._decode(inputs, rest, strategy)
            texts |= {
                request.request_index: translation.text
                for request, translation in zip(rest, translations, strict=True)
            }
            yield from (texts[request.request_index] for request in inputs.requests)

    @override
    def with_models(self, models: Sequence[nn.Module]) -> Self:
        copied = super().with_models(models)
        torch_config = self.decoding.model_copy(update={"backend": "torch"})
        copied._text_backend = TextBackend(copied.model, torch_config, self.device)
        return copied

    @override
    def token_names(self, request: str | Request, ids: Sequence[int]) -> list[str]:
        tokenizer = self.tokenizers.for_source(to_request(request).text).target
        return display_outputs(ids, tokenizer)

    @override
    def encode(self, window: RequestWindow[str | Request]) -> TextInputs:
        requests, options, location, start_index, report = window
        encoded = self._request_encoder.encode(
            list(map(to_request, requests)),
            location=location,
            start_index=start_index,
            too_long=options.too_long,
            report=report,
        )
        return TextInputs(encoded, self._translation_builder)

    @override
    def default_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[Metric]:
        return get_metrics(DEFAULT_METRICS)
