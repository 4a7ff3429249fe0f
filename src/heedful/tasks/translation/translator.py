"""Telling: from what was found to translations that people can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.pair_dataset import Pair
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest, Request, RequestEncoder, to_request
from heedful.decoding.strategies import DecodingOutput, DecodingStrategy
from heedful.decoding.translation import (
    EMPTY_PHRASE_TABLE,
    EOS_LABEL,
    NO_WORD_ID,
    SearchNode,
    TokenTextMapper,
    Translation,
    read_phrase_table,
    replace_unknown_words,
    whitespace_words,
    word_ids,
)
from heedful.errors import ConfigError
from heedful.evaluation.base import MetricScore
from heedful.evaluation.registry import compute_metrics
from heedful.models.base import DecodableModel
from heedful.search import Hypothesis, Node
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import EOS, UNK

__all__ = [
    "EOS_LABEL",
    "DecodingConfig",
    "Request",
    "Translation",
    "Translator",
]


class TranslationBuilder:
    """Tells what was found, in the words of these texts."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig) -> None:
        self.tokenizers = tokenizers
        self._source, self._target = (
            TokenTextMapper(tokenizers.source),
            TokenTextMapper(tokenizers.target),
        )
        self.copies_unknown_words = config.unk_replacement == "copy"
        self.dictionary = EMPTY_PHRASE_TABLE
        if config.phrase_table is not None:
            self.dictionary = read_phrase_table(config.phrase_table)

    def build(self, requests: EncodedRequest, decoded: DecodingOutput) -> Translation:
        """Put the first output in front, and the others beside it."""
        token_texts = self._source.source_token_texts(requests.source, requests.request.text)
        first, *others = (
            self._build_translation(requests, token_texts, each) for each in decoded.hypotheses
        )
        tree = None if decoded.tree is None else [self._build_branch(node) for node in decoded.tree]
        return first._replace(alternatives=tuple(others), tree=tree)

    def build_empty(self, requests: EncodedRequest, *, need_tree: bool) -> Translation:
        """Say of an empty text that nothing follows from it."""
        zero_weights = np.zeros((1, len(requests.source) + 1), np.float32)
        nothing = Hypothesis([], 0.0, 0.0, zero_weights[:0], np.zeros(1), zero_weights[0])
        return self.build(requests, DecodingOutput([nothing], [] if need_tree else None))

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
            source_tokens=[*self.tokenizers.source.ids_to_tokens(requests.source), EOS_LABEL],
            tokens=self.tokenizers.target.ids_to_tokens(output.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, :num_source_tokens],
            eos_weights=output.eos_weights[:num_source_tokens],
            source_word_ids=[*word_ids(source, whitespace_words("".join(source))), NO_WORD_ID],
            word_ids=word_ids(pieces, whitespace_words(text)),
        )

    def _build_branch(self, node: Node) -> SearchNode:
        shown = EOS_LABEL if node.token == EOS else None
        if node.token not in (None, EOS):
            (shown,) = self.tokenizers.target.ids_to_tokens([node.token])
        return SearchNode(node.parent, shown, *node[2:])

    def _output_texts(self, source: Sequence[str], output: Hypothesis) -> list[str]:
        token_texts = self._target.token_texts(output.tokens)
        if not self.copies_unknown_words or UNK not in output.tokens:
            return token_texts
        return replace_unknown_words(
            token_texts, output.tokens, output.weights, source=source, phrase_table=self.dictionary
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

    def translate(
        self,
        texts: Sequence[str | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> list[Translation]:
        """Translate texts; an empty text gives an empty output, unless it is asked for more."""
        return list(self.stream(texts, beam_size=beam_size, n_best=n_best, need_tree=need_tree))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """Say of given texts what would be said of them if they had been found."""
        return list(self.stream(Request(text, target=target) for text, target in pairs))

    def stream(
        self,
        texts: Iterable[str | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
        location: str = "text",
        start_index: int = 1,
    ) -> Iterator[Translation]:
        """Translate texts as they come, in order, a bounded number at a time.

        They are numbered from `first`: by its number an error names a text of the `input_name`, and
        what is drawn for a text depends on it.
        """
        settings = self.decoding.with_beam_size(beam_size=beam_size, n_best=n_best)
        if need_tree and settings.sampling_setting:
            raise _no_search_tree_error(settings.sampling_setting)
        strategy = DecodingStrategy(
            self.model, settings, detokenize=self.tokenizers.target.decode, device=self.device
        )
        stream = map(to_request, texts)
        while window := list(islice(stream, _SORT_WINDOW)):
            asked = self._request_encoder.encode(window, location=location, start_index=start_index)
            yield from self._translate(asked, strategy, need_tree=need_tree)
            start_index += len(window)

    def predict(
        self, requests: Iterable[str | Request], *, location: str = "text", start_index: int = 1
    ) -> Iterator[Translation]:
        """Translate texts as they come, with the settings of the run."""
        return self.stream(requests, location=location, start_index=start_index)

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
        outputs_by_number: dict[int, DecodingOutput] = {}
        for batch in _batches(requests, strategy.config):
            answers = strategy.decode(batch, need_tree=need_tree)
            numbers = (each.request_index for each in batch)
            outputs_by_number.update(zip(numbers, answers, strict=True))
        for each in requests:
            if each.request_index in outputs_by_number:
                yield self._translation_builder.build(each, outputs_by_number[each.request_index])
            else:
                yield self._translation_builder.build_empty(each, need_tree=need_tree)


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
        "need_tree",
        f"only a beam has a tree, and outputs are drawn (decoding.{sampling_setting} is set)",
        f"ask for no tree, or set decoding.{sampling_setting} to null",
    )
