"""Predictors of models that pool a text: what they compute, and the attention of their layers.

A hierarchical encoder pools the words of each sentence, then the model pools the sentences; the
weight of a token is the product of both.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.translation import BOS_LABEL, EOS_LABEL, TokenTextMapper, token_axis
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    collect_layers,
    encoder_axis,
    without_words,
)
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.shapes import Float
from heedful.tasks.prediction import TokenizedTextPredictor
from heedful.tokenization.special_texts import SENTENCE_END_ID
from heedful.tokenization.tokenizer import Tokenizer

_POOLING = "pooling.attention"  # module path of the attention whose weights are shown
_WORD_POOLING = "encoder.pooling.attention"  # over the words of sentences, if it is hierarchical


class PooledTextOutput(NamedTuple):
    """What a model computes for a batch of texts."""

    ids: list[list[int]]
    tokens: list[list[str]]  # the last of each text stands for EOS
    values: Float[Tensor, "B N"]
    weights: list[NDArray[np.float32]] | None  # of the tokens; None without attention pooling
    records: list[TraceRecord]

    def collect_layers(
        self, row: int, source: str, output: str, tokenizer: Tokenizer
    ) -> list[AttentionLayer]:
        """Return the attention layers of the only text, whose output is shown as `output`."""
        ids, records = self.ids[row], self.records
        texts = TokenTextMapper(tokenizer).source_token_texts(ids, source)
        tokens = token_axis(self.tokens[row][:-1], texts).followed_by(without_words([EOS_LABEL]))
        is_hierarchical = any(record.module_path == _WORD_POOLING for record in records)
        lengths = split_rows([ids])[0] if is_hierarchical else ()
        sentences = without_words([f"sentence {n + 1}" for n in range(len(lengths))])
        records = [
            replace(record, weights=spread_sentences(record.weights, lengths))
            if record.module_path == _WORD_POOLING
            else record
            for record in records
        ]

        def axes_of(record: TraceRecord) -> Axes:
            if record.module_path == _POOLING:
                return "pooling", without_words([output]), sentences if lengths else tokens
            if record.module_path == _WORD_POOLING:
                return "encoder-pooling", sentences, tokens
            axis = encoder_axis(record, tokens, bos_label=BOS_LABEL)
            return f"encoder-{record.role}", axis, axis

        return collect_layers(records, axes_of, default="pooling")


def read_pooled(
    predictor: TokenizedTextPredictor[Any, Any], texts: Sequence[str]
) -> PooledTextOutput:
    """Run a `PooledTextModel`, without the rest of its ensemble."""
    ids, sources = predictor.encode(texts)
    with trace_attention(predictor.model, device="cpu") as records:
        values, _ = predictor.model.project(sources)
    tokens = [[*predictor.tokenizers.source.ids_to_tokens(row), EOS_LABEL] for row in ids]
    means = {  # over heads
        record.module_path: record.weights.mean(dim=1).squeeze(1).numpy()
        for record in records
        if record.module_path in (_POOLING, _WORD_POOLING)
    }
    weights: list[NDArray[np.float32]] | None = None
    if _POOLING in means:
        weights = list(means[_POOLING])
        if _WORD_POOLING in means:
            weights = combine_levels(means[_WORD_POOLING], weights, split_rows(ids))
        weights = [row[: len(text)] for row, text in zip(weights, tokens, strict=True)]
    return PooledTextOutput(ids, tokens, values, weights, records)


def split_rows(ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the numbers of tokens of the sentences of each text, each with its mark or EOS."""
    rows = []
    for tokens in ids:
        ends = [index + 1 for index, token in enumerate(tokens) if token == SENTENCE_END_ID]
        rows.append([end - start for start, end in pairwise([0, *ends, len(tokens) + 1])])
    return rows


def combine_levels(
    word_weights: NDArray[np.float32],
    sentence_weights: Sequence[NDArray[np.float32]],
    lengths: Sequence[Sequence[int]],
) -> list[NDArray[np.float32]]:
    """Return the weight of each token: that in its sentence, times that of the sentence."""
    sentences = iter(word_weights)
    return [
        np.concatenate(
            [next(sentences)[:length] * row[index] for index, length in enumerate(text_lengths)]
        )
        for row, text_lengths in zip(sentence_weights, lengths, strict=True)
    ]


def spread_sentences(weights: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the weights (M, H, 1, W) of the sentences of one text over all its tokens."""
    spread = weights.new_zeros(1, weights.size(1), len(lengths), sum(lengths))
    for index, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
        spread[0, :, index, end - length : end] = weights[index, :, 0, :length]
    return spread
