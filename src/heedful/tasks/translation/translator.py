"""The translator: a trained model, or an ensemble, with its tokenizers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload
from warnings import warn

import torch
from typing_extensions import Unpack, override

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
from heedful.decoding.translation import Translation, TranslationBuilder
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import DEFAULT_METRICS, get_metrics
from heedful.inspection.attention_layers import AttentionLayer, TokenAxis
from heedful.models.base import DecodableModel
from heedful.tasks.prediction import check_json, format_predictor
from heedful.tasks.search_predictor import (
    CopyProbs,
    SearchInputs,
    SearchKeywords,
    SearchOptions,
    SearchPredictor,
)
from heedful.tasks.translation.files import check_constraints
from heedful.tasks.translation.text_backend import TextBackend
from heedful.tokenization.tokenizer_pair import TokenizerPair


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

    @check_types
    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """Score given outputs, as if a search had found them."""
        return list(self.predict(Request(text, target=target) for text, target in pairs))

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
    def encode(
        self,
        requests: Sequence[str | Request],
        options: TranslationOptions,
        *,
        location: str,
        start_index: int,
        report: Callable[[str], None],
    ) -> TextInputs:
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
