"""Telling: from what was found to translations that people can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import nn

from heedful.acceleration.packed_weights import frozen_weights
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest, Request, RequestEncoder, to_request
from heedful.decoding.strategies import DecodedOutputs, DecodingStrategy
from heedful.decoding.translation import (
    END_LABEL,
    NO_DICTIONARY,
    NO_WORD_ID,
    SearchNode,
    TokenTextMapper,
    Translation,
    read_dictionary,
    replace_unknown_words,
    whitespace_words,
    word_ids,
)
from heedful.errors import ConfigError
from heedful.models.base import DecodableModel
from heedful.search import Hypothesis, Node
from heedful.tokenization.text_pair import TokenizerPair
from heedful.tokenization.vocabulary import EOS, UNK

__all__ = [
    "DecodingConfig",
    "END_LABEL",
    "Request",
    "Translation",
    "Translator",
]


class TranslationBuilder:
    """Tells what was found, in the words of these texts."""

    def __init__(self, text: TokenizerPair, settings: DecodingConfig) -> None:
        self.text = text
        self._source, self._target = TokenTextMapper(text.source), TokenTextMapper(text.target)
        self.copies_unknown_words = settings.unknown_words == "copy"
        self.dictionary = NO_DICTIONARY
        if settings.dictionary is not None:
            self.dictionary = read_dictionary(settings.dictionary)

    def build(self, requests: EncodedRequest, decoded: DecodedOutputs) -> Translation:
        """Put the first output in front, and the others beside it."""
        token_texts = self._source.source_token_texts(requests.source, requests.request.text)
        first, *others = (
            self._build_translation(requests, token_texts, each) for each in decoded.outputs
        )
        tree = None if decoded.tree is None else [self._build_branch(node) for node in decoded.tree]
        return first._replace(alternatives=tuple(others), tree=tree)

    def build_empty(self, requests: EncodedRequest, *, want_tree: bool) -> Translation:
        """Say of an empty text that nothing follows from it."""
        zero_weights = np.zeros((1, len(requests.source) + 1), np.float32)
        nothing = Hypothesis([], 0.0, 0.0, zero_weights[:0], np.zeros(1), zero_weights[0])
        return self.build(requests, DecodedOutputs([nothing], [] if want_tree else None))

    def _build_translation(
        self, requests: EncodedRequest, source: Sequence[str], output: Hypothesis
    ) -> Translation:
        num_source_tokens, pieces = len(requests.source) + 1, self._output_texts(source, output)
        text = "".join(pieces)
        return Translation(
            source=requests.request.text,
            text=text if requests.request.target is None else requests.request.target,
            score=output.score,
            log_prob=output.log_prob,
            source_tokens=[*self.text.source.ids_to_tokens(requests.source), END_LABEL],
            tokens=self.text.target.ids_to_tokens(output.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, :num_source_tokens],
            end_weights=output.end_weights[:num_source_tokens],
            source_word_ids=[*word_ids(source, whitespace_words("".join(source))), NO_WORD_ID],
            word_ids=word_ids(pieces, whitespace_words(text)),
        )

    def _build_branch(self, node: Node) -> SearchNode:
        shown = END_LABEL if node.token == EOS else None
        if node.token not in (None, EOS):
            (shown,) = self.text.target.ids_to_tokens([node.token])
        return SearchNode(node.parent, shown, *node[2:])

    def _output_texts(self, source: Sequence[str], output: Hypothesis) -> list[str]:
        token_texts = self._target.token_texts(output.tokens)
        if not self.copies_unknown_words or UNK not in output.tokens:
            return token_texts
        return replace_unknown_words(
            token_texts, output.tokens, output.weights, source=source, dictionary=self.dictionary
        )


# The translator: a trained model with its text, asked for outputs.
#
# What comes out of a text does not depend on what is translated beside it: texts are sorted and
# batched for speed, and come back in the order they went in. What is drawn for a text depends on the
# seed and on its number.

_SORT_WINDOW = 1024  # texts that are sorted by length together when streaming


class Translator:
    """A trained model, or several that are asked together, with its text."""

    def __init__(
        self,
        model: DecodableModel,
        text: TokenizerPair,
        decoding: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.eval().to(device) if isinstance(model, nn.Module) else model
        self.text = text
        self.decoding = decoding
        self.device = device
        self._request_encoder = RequestEncoder(text, decoding)
        self._translation_builder = TranslationBuilder(text, decoding)

    def translate(
        self,
        texts: Sequence[str | Request],
        *,
        beam: int | None = None,
        nbest: int | None = None,
        want_tree: bool = False,
    ) -> list[Translation]:
        """Translate texts; an empty text gives an empty output, unless it is asked for more."""
        return list(self.stream(texts, beam=beam, nbest=nbest, want_tree=want_tree))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """Say of given texts what would be said of them if they had been found."""
        return list(self.stream(Request(text, target=target) for text, target in pairs))

    def stream(
        self,
        texts: Iterable[str | Request],
        *,
        beam: int | None = None,
        nbest: int | None = None,
        want_tree: bool = False,
        origin: str = "text",
        first: int = 1,
    ) -> Iterator[Translation]:
        """Translate texts as they come, in order, a bounded number at a time.

        They are numbered from `first`: by its number an error names a text of the `input_name`, and
        what is drawn for a text depends on it.
        """
        settings = self.decoding.with_beam_size(beam=beam, nbest=nbest)
        if want_tree and settings.sampling_setting:
            raise _no_search_tree_error(settings.sampling_setting)
        strategy = DecodingStrategy(
            self.model, settings, detokenize=self.text.target.decode, device=self.device
        )
        stream = map(to_request, texts)
        while window := list(islice(stream, _SORT_WINDOW)):
            asked = self._request_encoder.encode(window, origin=origin, first=first)
            yield from self._translate(asked, strategy, want_tree=want_tree)
            first += len(window)

    def _translate(
        self, requests: list[EncodedRequest], strategy: DecodingStrategy, *, want_tree: bool
    ) -> Iterator[Translation]:
        outputs_by_number: dict[int, DecodedOutputs] = {}
        with frozen_weights():
            for batch in _batches(requests, strategy.settings):
                answers = strategy.decode(batch, want_tree=want_tree)
                numbers = (each.number for each in batch)
                outputs_by_number.update(zip(numbers, answers, strict=True))
        for each in requests:
            if each.number in outputs_by_number:
                yield self._translation_builder.build(each, outputs_by_number[each.number])
            else:
                yield self._translation_builder.build_empty(each, want_tree=want_tree)


def _batches(
    requests: Sequence[EncodedRequest], settings: DecodingConfig
) -> Iterator[list[EncodedRequest]]:
    """Group texts of like length; empty ones of which nothing is wished are not asked about."""
    given = [each for each in requests if each.target is not None]
    free = [each for each in requests if each.target is None and not each.is_empty]
    for some, width in ((given, 1), (free, settings.num_outputs)):
        left = sorted(some, key=lambda each: len(each.source), reverse=True)
        while left:
            widest = len(left[0].source) + 1
            count = max(1, settings.max_batch_tokens // (widest * width))
            yield left[:count]
            left = left[count:]


def _no_search_tree_error(sampling_setting: str) -> ConfigError:
    return ConfigError(
        "want_tree",
        f"only a beam has a tree, and outputs are drawn (decoding.{sampling_setting} is set)",
        f"ask for no tree, or set decoding.{sampling_setting} to null",
    )
