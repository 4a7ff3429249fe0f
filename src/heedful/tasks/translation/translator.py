"""The translator: a trained model, or an ensemble, with its tokenizers.

Texts are sorted by length and batched for speed, and returned in their order. Invariant: the output
of a text does not depend on the other texts; with sampling it depends on the seed and its index.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload

import torch
from torch import nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.pair_dataset import Pair
from heedful.decoding.config import DecodingConfig, check_search_tree
from heedful.decoding.requests import EncodedRequest, Request, RequestEncoder, to_request
from heedful.decoding.strategies import DecodingOutput, DecodingStrategy
from heedful.decoding.translation import Translation, TranslationBuilder
from heedful.evaluation.base import MetricScore
from heedful.evaluation.registry import compute_metrics
from heedful.models.base import DecodableModel
from heedful.tasks.prediction import format_predictor
from heedful.tokenization.tokenizer_pair import TokenizerPair

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
        self._request_encoder = RequestEncoder(tokenizers, config)
        self._translation_builder = TranslationBuilder(tokenizers, config)

    def __repr__(self) -> str:
        sizes = f"vocabulary {len(self.tokenizers.source)} to {len(self.tokenizers.target)}"
        return format_predictor(self, sizes, f"beam size {self.decoding.beam_size}")

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self,
        texts: str | Request,
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: Iterable[str | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Request | Iterable[str | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> Translation | list[Translation]:
        """Translate a text, or texts; an empty text without constraints has an empty output."""
        is_one = isinstance(texts, str | Request)
        requests = [texts] if isinstance(texts, str | Request) else texts
        results = self.predict(requests, beam_size=beam_size, n_best=n_best, need_tree=need_tree)
        return next(results) if is_one else list(results)

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
    ) -> Iterator[Translation]:
        """Translate texts as they arrive, in order, a bounded number at a time.

        Texts are numbered from `start_index`: errors name a text by `location` and index, and its
        samples depend on the index.
        """
        config = self.decoding.with_beam_size(beam_size=beam_size, n_best=n_best)
        if need_tree:
            check_search_tree(config, "need_tree")
        strategy = DecodingStrategy(
            self.model, config, detokenize=self.tokenizers.target.decode, device=self.device
        )
        stream = map(to_request, requests)
        while window := list(islice(stream, _SORT_WINDOW)):
            encoded = self._request_encoder.encode(
                window, location=location, start_index=start_index
            )
            yield from self._translate(encoded, strategy, need_tree=need_tree)
            start_index += len(window)

    def evaluate(self, examples: Sequence[Pair]) -> list[MetricScore]:
        """Translate the sources and compute the default metrics against the targets."""
        outputs = [result.text for result in self.predict(pair.source for pair in examples)]
        return compute_metrics(outputs, [pair.target for pair in examples])

    def count_tokens(self, examples: Sequence[Pair]) -> int:
        """Return the number of target tokens, EOS included."""
        targets = self.tokenizers.target.encode_batch([pair.target for pair in examples])
        return sum(len(target) + 1 for target in targets)

    def _translate(
        self, requests: list[EncodedRequest], strategy: DecodingStrategy, *, need_tree: bool
    ) -> Iterator[Translation]:
        outputs: dict[int, DecodingOutput] = {}
        for batch in _batches(requests, strategy.config):
            decoded = strategy.decode(batch, need_tree=need_tree)
            indices = (request.request_index for request in batch)
            outputs.update(zip(indices, decoded, strict=True))
        for request in requests:
            if request.request_index in outputs:
                yield self._translation_builder.build(request, outputs[request.request_index])
            else:
                yield self._translation_builder.build_empty(request, need_tree=need_tree)


def _batches(
    requests: Sequence[EncodedRequest], config: DecodingConfig
) -> Iterator[list[EncodedRequest]]:
    """Batch requests of similar length, those with a target apart; leave out empty ones."""
    with_target = [request for request in requests if request.target is not None]
    without = [request for request in requests if request.target is None and not request.is_empty]
    for group, rows_per_request in ((with_target, 1), (without, config.num_outputs)):
        remaining = sorted(group, key=lambda request: len(request.source), reverse=True)
        while remaining:
            max_length = len(remaining[0].source) + 1
            batch_size = max(1, config.max_batch_tokens // (max_length * rows_per_request))
            yield remaining[:batch_size]
            remaining = remaining[batch_size:]
