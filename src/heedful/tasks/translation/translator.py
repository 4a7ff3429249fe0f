"""The translator: a trained model, or an ensemble, with its tokenizers.

Texts are sorted by length and batched for speed, and returned in their order. Invariant: the output
of a text does not depend on the other texts; with sampling it depends on the seed and its index.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import overload
from warnings import warn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.config import check_types
from heedful.data.text.batching import collate_pairs, collate_sources
from heedful.data.text.pair_dataset import Pair
from heedful.decoding.config import DecodingConfig, check_search_tree
from heedful.decoding.requests import (
    EncodedRequest,
    Request,
    RequestEncoder,
    TooLong,
    batch_requests,
    to_request,
)
from heedful.decoding.strategies import DecodingOutput, DecodingStrategy
from heedful.decoding.translation import BOS_LABEL, Translation, TranslationBuilder
from heedful.evaluation.base import MetricScore
from heedful.evaluation.registry import compute_metrics
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    collect_layers,
    encoder_axis,
    mark_output_layers,
)
from heedful.inspection.attention_trace import TraceRecord, trace_output
from heedful.models.base import DecodableModel, Seq2SeqModel
from heedful.models.copying import compute_copy_probs, find_copying_head
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.pytree import map_tensors
from heedful.tasks.prediction import format_predictor
from heedful.tasks.translation.text_backend import TextBackend
from heedful.tokenization.tokenizer_pair import TokenizerPair

CopyProbs = list[NDArray[np.float32]]  # one array per hypothesis

_SORT_WINDOW = 1024  # texts that are sorted by length together


class Translator:
    """A trained model with its tokenizers and decoding settings."""

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
        self._text_backend = TextBackend(model, config, device)
        self._request_encoder = RequestEncoder(tokenizers, config)
        self._translation_builder = TranslationBuilder(tokenizers, config)
        alone = model.model if isinstance(model, ShallowFusion) else model
        members = alone.members if isinstance(alone, Ensemble) else [alone]
        modules = [member for member in members if isinstance(member, nn.Module)]
        self._copying_models = [module for module in modules if find_copying_head(module)]

    def __repr__(self) -> str:
        sizes = f"vocabulary {len(self.tokenizers.source)} to {len(self.tokenizers.target)}"
        return format_predictor(self, sizes, f"beam size {self.decoding.beam_size}")

    @property
    def has_text_backend(self) -> bool:
        """Whether `predict_texts` finds some or all outputs in another way than `predict`."""
        return self._text_backend.is_available

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self,
        texts: str | Request,
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
        too_long: TooLong = "error",
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: Iterable[str | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
        too_long: TooLong = "error",
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
        requests = [texts] if isinstance(texts, str | Request) else texts
        results = self.predict(
            requests, beam_size=beam_size, n_best=n_best, need_tree=need_tree, too_long=too_long
        )
        return next(results) if is_one else list(results)

    @check_types
    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """Score given outputs, as if a search had found them."""
        return list(self.predict(Request(text, target=target) for text, target in pairs))

    def predict(
        self,
        requests: Iterable[str | Request],
        *,
        location: str = "text",
        start_index: int = 1,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
        need_layers: bool = False,
        too_long: TooLong = "error",
        report: Callable[[str], None] = warn,
    ) -> Iterator[Translation]:
        """Translate texts as they arrive, in order, a bounded number at a time.

        Texts are numbered from `start_index`: errors and reports name a text by `location` and
        index, and its samples depend on the index.
        """
        config = self.decoding.with_beam_size(beam_size=beam_size, n_best=n_best)
        if need_tree:
            check_search_tree(config, "need_tree")
        strategy = DecodingStrategy(
            self.model, config, tokenizers=self.tokenizers, device=self.device
        )
        stream = map(to_request, requests)
        while window := list(islice(stream, _SORT_WINDOW)):
            encoded = self._request_encoder.encode(
                window,
                location=location,
                start_index=start_index,
                too_long=too_long,
                report=report,
            )
            yield from self._translate(
                encoded, strategy, need_tree=need_tree, need_layers=need_layers
            )
            start_index += len(window)

    def predict_texts(
        self,
        requests: Iterable[str | Request],
        *,
        location: str = "text",
        start_index: int = 1,
        beam_size: int | None = None,
        too_long: TooLong = "error",
        report: Callable[[str], None] = warn,
    ) -> Iterator[str]:
        """Yield only the texts of translations, from the backend that the settings choose."""
        config = self.decoding.with_beam_size(beam_size=beam_size)
        strategy = DecodingStrategy(
            self.model, config, tokenizers=self.tokenizers, device=self.device
        )
        stream = map(to_request, requests)
        while window := list(islice(stream, _SORT_WINDOW)):
            encoded = self._request_encoder.encode(
                window,
                location=location,
                start_index=start_index,
                too_long=too_long,
                report=report,
            )
            empty = (item for item in encoded if item.is_empty)
            texts = {request.request_index: "" for request in empty}
            for batch in batch_requests(encoded, config):
                outputs = self._text_backend.find_best(batch, config)
                for request, tokens in zip(batch, outputs, strict=True):
                    if tokens is not None:
                        text = self._translation_builder.build_text(request, tokens)
                        texts[request.request_index] = text
            rest = [request for request in encoded if request.request_index not in texts]
            translations = self._translate(rest, strategy, need_tree=False, need_layers=False)
            texts |= {
                request.request_index: translation.text
                for request, translation in zip(rest, translations, strict=True)
            }
            yield from (texts[request.request_index] for request in encoded)
            start_index += len(window)

    def predict_with_attention(self, requests: Iterable[str | Request]) -> Iterator[Translation]:
        """Translate texts; the results have the attention weights of each layer."""
        return self.predict(requests, need_layers=True)

    def evaluate(self, examples: Sequence[Pair]) -> list[MetricScore]:
        """Translate the sources and compute the default metrics against the targets."""
        outputs = [result.text for result in self.predict(pair.source for pair in examples)]
        return compute_metrics(outputs, [pair.references for pair in examples])

    def count_tokens(self, examples: Sequence[Pair]) -> int:
        """Return the number of target tokens, EOS included."""
        targets = self.tokenizers.target.encode_batch([pair.target for pair in examples])
        return sum(len(target) + 1 for target in targets)

    def _translate(
        self,
        requests: list[EncodedRequest],
        strategy: DecodingStrategy,
        *,
        need_tree: bool,
        need_layers: bool,
    ) -> Iterator[Translation]:
        outputs: dict[int, tuple[DecodingOutput, CopyProbs | None]] = {}
        for batch in batch_requests(requests, strategy.config):
            decoded = strategy.decode(batch, need_tree=need_tree)
            indices = (request.request_index for request in batch)
            shares = self._copy_probs(batch, decoded)
            outputs.update(zip(indices, zip(decoded, shares, strict=True), strict=True))
        for request in requests:
            if request.request_index not in outputs:
                yield self._translation_builder.build_empty(request, need_tree=need_tree)
                continue
            output, copy_probs = outputs[request.request_index]
            layers: Sequence[AttentionLayer] = ()
            if need_layers:
                best_copy_probs = None if copy_probs is None else copy_probs[0].tolist()
                layers = self._trace(request, output.hypotheses[0].tokens, best_copy_probs)
            translation = self._translation_builder.build(request, output, copy_probs)
            yield translation._replace(attention_layers=layers)

    def _copy_probs(
        self, requests: Sequence[EncodedRequest], outputs: Sequence[DecodingOutput]
    ) -> list[CopyProbs | None]:
        """Decode outputs once more, with teacher forcing; the mean over the members that copy."""
        if not self._copying_models:
            return [None] * len(outputs)
        pairs = [
            (request.source, hypothesis.tokens)
            for request, output in zip(requests, outputs, strict=True)
            for hypothesis in output.hypotheses
        ]
        batch = map_tensors(lambda tensor: tensor.to(self.device), collate_pairs(pairs))
        shares = [compute_copy_probs(model, batch) for model in self._copying_models]
        mean = torch.stack([item for item in shares if item is not None]).mean(dim=0)
        rows = zip(mean.float().cpu().numpy(), pairs, strict=True)
        of_hypotheses = iter([row[: len(tokens)] for row, (_, tokens) in rows])
        return [list(islice(of_hypotheses, len(output.hypotheses))) for output in outputs]

    @torch.inference_mode()
    def _trace(
        self, request: EncodedRequest, tokens: list[int], copy_probs: list[float] | None
    ) -> Sequence[AttentionLayer]:
        """Return the attention of each layer while it decodes an output."""
        if not tokens or not isinstance(self.model, Seq2SeqModel):  # empty, or an ensemble
            return ()
        records = trace_output(self.model, collate_sources([request.source]), tokens, self.device)
        source, target = self._translation_builder.token_axes(request, tokens)
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

        layers = collect_layers(records, axes_of)
        return mark_output_layers(layers, getattr(self.model, "decoder", None))
