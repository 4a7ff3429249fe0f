"""Translations: the results of decoding, with log-probabilities and attention weights.

`TranslationBuilder` makes them from token ids. Unknown words are replaced here, after the search,
so that `tokens` still show them. Invariants: `tokens`, `weights` and `word_ids` have one entry per
token, `log_probs` one more for EOS; `source_tokens` and `source_word_ids` end with EOS, which
belongs to no word; the sum of `log_probs` is `log_prob`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_files import read_lines
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest
from heedful.decoding.strategies import DecodingOutput
from heedful.decoding.token_texts import NO_WORD_ID, TokenTextMapper, whitespace_words, word_ids
from heedful.errors import DataError, check
from heedful.inspection.attention_map import AttentionMap, render_notebook_html
from heedful.search import Hypothesis, Node
from heedful.search.candidates import NodeStatus
from heedful.tokenization.tokenizer import split_words
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import EOS, SPECIAL_TOKENS, UNK

EOS_LABEL = "(end)"
_DIGITS = 6  # of numbers in JSON


class SearchNode(NamedTuple):
    """A node of the search tree (`heedful.search.Node`) with its token as text."""

    parent: int | None
    token: str | None  # None at the root
    log_prob: float
    cumulative_log_prob: float
    status: NodeStatus

    def to_json(self) -> dict[str, Any]:
        """Return plain values; numbers that are not finite become None."""
        fields = self._asdict()
        fields["log_prob"] = _to_number(self.log_prob)
        fields["cumulative_log_prob"] = _to_number(self.cumulative_log_prob)
        return fields


class Translation(NamedTuple):
    """An output with its score and the attention weights of its tokens."""

    source: str
    text: str
    score: float  # log-probability after penalties, or expected utility with MBR
    log_prob: float  # model log-probability of all tokens and EOS
    source_tokens: list[str]  # the last is EOS
    tokens: list[str]
    log_probs: NDArray[np.float64]  # (tokens + 1,), the last of EOS
    weights: NDArray[np.float32]  # (tokens, source tokens); zeros without attention
    eos_weights: NDArray[np.float32]  # (source tokens,)
    source_word_ids: list[int]  # whitespace-separated word that each source token belongs to
    word_ids: list[int]
    alternatives: tuple[Translation, ...] = ()  # the next best outputs, or further samples
    tree: list[SearchNode] | None = None  # the whole search, if it was requested

    @property
    def attention_map(self) -> AttentionMap:
        """The attention weights, ready to be drawn."""
        return AttentionMap(self.source_tokens, self.tokens, self.weights, title=self.source)

    def to_json(self, *, weights: bool = True, tree: bool = False) -> dict[str, Any]:
        """Return plain values for JSON; docs/translate.md describes every field."""
        fields = {
            "source": self.source,
            "source_tokens": self.source_tokens,
            **self._output_to_json(weights=weights),
            "alternatives": [
                output._output_to_json(weights=weights) for output in self.alternatives
            ],
        }
        if tree and self.tree is not None:
            fields["tree"] = [node.to_json() for node in self.tree]
        return fields

    def _output_to_json(self, *, weights: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "text": self.text,
            "score": _to_number(self.score),
            "log_prob": _to_number(self.log_prob),
            "tokens": self.tokens,
            "log_probs": [_to_number(log_prob) for log_prob in self.log_probs.tolist()],
        }
        if weights:
            fields["weights"] = self.weights.astype("float64").round(_DIGITS).tolist()
            fields["eos_weights"] = self.eos_weights.astype("float64").round(_DIGITS).tolist()
        return fields

    def _repr_html_(self) -> str:
        return render_notebook_html(self.attention_map)


def _to_number(value: float) -> float | None:
    """Round for JSON, which has no infinity: an impossible output has the score null."""
    return round(value, _DIGITS) if math.isfinite(value) else None


class TranslationBuilder:
    """Makes translations from decoded token ids."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig) -> None:
        self.tokenizers = tokenizers
        self._source_texts = TokenTextMapper(tokenizers.source)
        self._target_texts = TokenTextMapper(tokenizers.target)
        self.replaces_unknown_words = config.unk_replacement == "copy"
        self.phrase_table = EMPTY_PHRASE_TABLE
        if config.phrase_table is not None:
            self.phrase_table = read_phrase_table(config.phrase_table)

    def build(self, request: EncodedRequest, output: DecodingOutput) -> Translation:
        """Return the first hypothesis with the others as its alternatives."""
        source_texts = self._source_texts.source_token_texts(request.source, request.request.text)
        best, *others = (
            self._build_translation(request, source_texts, hypothesis)
            for hypothesis in output.hypotheses
        )
        tree = None if output.tree is None else [self._build_node(node) for node in output.tree]
        return best._replace(alternatives=tuple(others), tree=tree)

    def build_empty(self, request: EncodedRequest, *, need_tree: bool) -> Translation:
        """Return the empty output of an empty text."""
        weights = np.zeros((1, len(request.source) + 1), np.float32)
        empty = Hypothesis([], 0.0, 0.0, weights[:0], np.zeros(1), weights[0])
        return self.build(request, DecodingOutput([empty], [] if need_tree else None))

    def _build_translation(
        self, request: EncodedRequest, source_texts: Sequence[str], output: Hypothesis
    ) -> Translation:
        num_source_tokens = len(request.source) + 1
        token_texts = self._target_texts.token_texts(output.tokens)
        if self.replaces_unknown_words and UNK in output.tokens:
            token_texts = replace_unknown_words(
                token_texts, output, source_texts=source_texts, phrase_table=self.phrase_table
            )
        text, source_words = "".join(token_texts), whitespace_words("".join(source_texts))
        return Translation(
            source=request.request.text,
            text=text if request.request.target is None else request.request.target,
            score=output.score,
            log_prob=output.log_prob,
            source_tokens=[*self.tokenizers.source.ids_to_tokens(request.source), EOS_LABEL],
            tokens=self.tokenizers.target.ids_to_tokens(output.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, :num_source_tokens],
            eos_weights=output.eos_weights[:num_source_tokens],
            source_word_ids=[*word_ids(source_texts, source_words), NO_WORD_ID],
            word_ids=word_ids(token_texts, whitespace_words(text)),
        )

    def _build_node(self, node: Node) -> SearchNode:
        token = EOS_LABEL if node.token == EOS else None
        if node.token not in (None, EOS):
            (token,) = self.tokenizers.target.ids_to_tokens([node.token])
        return SearchNode(node.parent, token, *node[2:])


PhraseTable = Mapping[str, str]
EMPTY_PHRASE_TABLE: PhraseTable = MappingProxyType({})


def read_phrase_table(path: Path) -> PhraseTable:
    """Read a source and a target word per line, separated by whitespace."""
    table: dict[str, str] = {}
    first_lines: dict[str, int] = {}
    for line_number, line in enumerate(read_lines(str(path)), start=1):
        if not (words := line.split()):
            continue
        location = f"{path}:{line_number}"
        check(
            len(words) == 2,
            location,
            f"expected 2 words, got {len(words)}",
            "write a source word, a tab or a space, and a target word",
            DataError,
        )
        source, target = words
        first_line = first_lines.setdefault(source, line_number)
        check(
            table.setdefault(source, target) == target,
            location,
            f"{source!r} maps to {target!r} here, but to {table[source]!r} in line {first_line}",
            "remove one of the lines",
            DataError,
        )
    return table


def replace_unknown_words(
    token_texts: Sequence[str],
    output: Hypothesis,
    *,
    source_texts: Iterable[str],
    phrase_table: PhraseTable,
) -> list[str]:
    """Replace each UNK by the translation, or a copy, of the source word with most attention.

    This is PosUnk (Luong et al. 2015b, section 3.3) with positions given by attention (Jean et al.
    2015). Where the model attended to EOS or nowhere, UNK remains.
    """
    source_texts = list(source_texts)
    words = split_words("".join(source_texts))  # the first follows a space that is not in the text
    source_word_ids = word_ids(source_texts, [words[0][1:], *words[1:]] if words else [])
    texts = list(token_texts)
    for position in (index for index, token in enumerate(output.tokens) if token == UNK):
        weights = output.weights[position, : len(source_texts)]
        word_id = source_word_ids[int(weights.argmax())] if weights.any() else NO_WORD_ID
        if word_id != NO_WORD_ID:
            word, space = words[word_id].strip(), texts[position].removesuffix(SPECIAL_TOKENS[UNK])
            texts[position] = space + phrase_table.get(word, word)
    return texts
