"""Spelling: which part of a text does each token stand for, and to which word does it belong?

Law: what the tokens of a text are spelled by, put together, is the text. A word is what white
space parts; a token belongs to the word that its first character other than white space is part
of. White space alone belongs to no word, and a byte that only completes a character belongs where
the token before it does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_files import read_lines
from heedful.errors import ConfigError, DataError
from heedful.inspection.attention_map import AttentionMap, render_notebook_html
from heedful.search.hypotheses import NodeStatus
from heedful.tokenization.tokenizer import (
    Tokenizer,
    VocabularyTokenizer,
    WordTokenizer,
    split_words,
)
from heedful.tokenization.vocabulary import SPECIAL_TOKENS, UNK

# Translations: outputs that carry their evidence.
#
# Laws: `tokens`, `weights` and `owner` have an entry for each token, `log_probs` one more, for the
# end; `source_tokens` and `source_word_ids` end in the end symbol of the source, which belongs to no
# word; the sum of `log_probs` is `log_prob`.

EOS_LABEL = "(end)"
NO_WORD_ID = -1
_DIGITS = 6  # of numbers in JSON
"""The owner of a token that is part of no word: white space, or the end."""


class SearchNode(NamedTuple):
    """A node of a search's tree (`heedful.search.Node`), its token as shown."""

    parent: int | None
    token: str | None  # None where nothing was said yet
    log_prob: float
    cumulative_log_prob: float
    status: NodeStatus

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "parent": self.parent,
            "token": self.token,
            "log_probability": _json_number(self.log_prob),
            "total": _json_number(self.cumulative_log_prob),
            "status": self.status,
        }


class Translation(NamedTuple):
    """An output, its worth, and where each of its tokens looked."""

    source: str
    text: str
    score: float  # what it was chosen by: log-probability after penalties, or expected gain
    log_prob: float  # of all tokens and the end, as the model has it
    source_tokens: list[str]  # as shown; the last stands for the end of the source
    tokens: list[str]  # as shown
    log_probs: NDArray[np.float64]  # (tokens + 1,) of each token, and last of the end
    weights: NDArray[np.float32]  # (tokens, source tokens); rows sum to one where it looked
    eos_weights: NDArray[np.float32]  # (source tokens,) where the end looked
    source_word_ids: list[
        int
    ]  # which word of the source, parted by white space, a token is part of
    word_ids: list[int]  # the same of the output's tokens
    alternatives: tuple[Translation, ...] = ()  # further outputs: the next best, or drawn later
    tree: list[SearchNode] | None = None  # all that the search held, if it was asked for

    @property
    def attention_map(self) -> AttentionMap:
        """Where each token looked, ready to be drawn."""
        return AttentionMap(self.source_tokens, self.tokens, self.weights, title=self.source)

    def to_json(self, *, weights: bool = True, tree: bool = False) -> dict[str, Any]:
        """Return JSON values; docs/translate.md explains every field."""
        fields = {
            "source": self.source,
            "source_tokens": self.source_tokens,
            **self._output_fields(weights=weights),
            "alternatives": [
                output._output_fields(weights=weights) for output in self.alternatives
            ],
        }
        if tree and self.tree is not None:
            fields["tree"] = [node.to_json() for node in self.tree]
        return fields

    def _output_fields(self, *, weights: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "text": self.text,
            "score": _json_number(self.score),
            "log_probability": _json_number(self.log_prob),
            "tokens": self.tokens,
            "log_probabilities": [_json_number(value) for value in self.log_probs.tolist()],
        }
        if weights:
            fields["weights"] = self.weights.astype("float64").round(_DIGITS).tolist()
            fields["eos_weights"] = self.eos_weights.astype("float64").round(_DIGITS).tolist()
        return fields

    def _repr_html_(self) -> str:
        return render_notebook_html(self.attention_map)


def _json_number(value: float) -> float | None:
    """Round for JSON, which has no infinity: an impossible output has null."""
    return round(value, _DIGITS) if math.isfinite(value) else None


_MAX_BYTES_BEFORE = (
    3  # tokens before one that it may complete a character with: UTF-8 takes up to four bytes
)
_WORD = re.compile(r"\s*\S+")


class TokenTextMapper:
    """Says which part of a text each token stands for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._offset = len(tokenizer.decode([UNK]))
        self._lengths: dict[int, int] = {}

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Say what each token adds to the text of those before it."""
        whole = self.tokenizer.decode([UNK, *ids])[self._offset :]
        lengths = [self._length(each) for each in ids]
        if sum(lengths) > len(whole):  # there are bytes that make a character only together
            lengths = self._lengths_in_context(ids)
        ends = [*accumulate(lengths)]
        pieces = [whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        return _strip_leading_space(pieces, len(whole) - len(self.tokenizer.decode(ids)))

    def source_token_texts(self, ids: Sequence[int], text: str) -> list[str]:
        """Say which part of a text each of its tokens was cut from, unknown ones included."""
        if not isinstance(self.tokenizer, VocabularyTokenizer):
            return self.token_texts(ids)
        pieces = self.tokenizer.tokenize(self.tokenizer.normalizer(text))
        return _strip_leading_space(pieces, int(isinstance(self.tokenizer, WordTokenizer)))

    def _length(self, token: int) -> int:
        if token not in self._lengths:
            self._lengths[token] = len(self.tokenizer.decode([UNK, token])) - self._offset
        return self._lengths[token]

    def _lengths_in_context(self, ids: Sequence[int]) -> list[int]:
        decode = self.tokenizer.decode
        windows = [
            [UNK, *ids[max(0, position - _MAX_BYTES_BEFORE) : position + 1]]
            for position in range(len(ids))
        ]
        return [len(decode(window)) - len(decode(window[:-1])) for window in windows]


def vocabulary_texts(tokenizer: Tokenizer) -> list[str]:
    """Say what each entry of a vocabulary adds to a text that has begun."""
    before = tokenizer.decode([UNK])
    return [tokenizer.decode([UNK, each])[len(before) :] for each in range(len(tokenizer))]


def whitespace_words(text: str) -> list[str]:
    """Part a text into words, each with the white space before it."""
    return _WORD.findall(text)


def word_ids(pieces: Sequence[str], words: Sequence[str]) -> list[int]:
    """Say which unit of a text each piece of it belongs to; both spell the same text."""
    bounds = [number for number, unit in enumerate(words) for _ in unit]
    found, position = list[int](), 0
    for piece in pieces:
        blank = len(piece) - len(piece.lstrip())
        if not piece:
            found.append(found[-1] if found else NO_WORD_ID)
        elif blank == len(piece):
            found.append(NO_WORD_ID)
        else:
            found.append(bounds[position + blank])
        position += len(piece)
    return found


def _strip_leading_space(pieces: list[str], num_characters: int) -> list[str]:
    """Leave out the space that a text is thought to follow."""
    first = next((position for position, piece in enumerate(pieces) if piece), None)
    if first is not None:
        pieces[first] = pieces[first][num_characters:]
    return pieces


# Unknown words: what can be said in their place?
#
# Where a model says that there is a word it does not know, the source word it looked at most is
# looked up in a dictionary, and copied if it is not there (Luong et al. 2015b, section 3.3, who call
# it PosUnk; places are told here by attention, as in Jean et al. 2015). Where it looked nowhere, the
# unknown word stays.

_WORDS_PER_LINE = 2
PhraseTable = Mapping[str, str]
EMPTY_PHRASE_TABLE: PhraseTable = MappingProxyType({})


def read_phrase_table(path: Path) -> PhraseTable:
    """Read two words a line, parted by white space: of the source, and of the target."""
    found: dict[str, str] = {}
    first: dict[str, int] = {}
    for number, line in enumerate(read_lines(str(path)), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != _WORDS_PER_LINE:
            raise DataError(
                f"{path}:{number}",
                f"two words are wanted, found {len(words)}",
                "write a word of the source, a tab or a space, and a word of the target",
            )
        source, target = words
        if found.setdefault(source, target) != target:
            raise DataError(
                f"{path}:{number}",
                f"{source!r} becomes {target!r} here, and {found[source]!r} in line "
                f"{first[source]}",
                "leave one of the lines out",
            )
        first.setdefault(source, number)
    return found


def check_word_tokenizer(tokenizer: Tokenizer) -> None:
    """Refuse to replace unknown words where there are none."""
    if not isinstance(tokenizer, WordTokenizer):
        raise ConfigError(
            "decoding.unk_replacement",
            "no word of an output can be unknown: its tokens are parts of words",
            "set unknowns to keep; only a target text of `type: word` has unknown words",
        )


def replace_unknown_words(
    token_texts: Sequence[str],
    ids: Sequence[int],
    weights: NDArray[np.float32],
    *,
    source: Sequence[str],
    phrase_table: PhraseTable,
) -> list[str]:
    """Spell an output anew; `source` is how the source is spelled, its end not counted."""
    words = split_words("".join(source))  # the first follows a space that is not in the text
    token_word_ids = word_ids(source, [words[0][1:], *words[1:]] if words else [])
    texts = list(token_texts)
    for place in (place for place, token in enumerate(ids) if token == UNK):
        token_weights = weights[place, : len(source)]
        word = token_word_ids[int(token_weights.argmax())] if token_weights.any() else NO_WORD_ID
        if word != NO_WORD_ID:
            said, lead = words[word].strip(), texts[place].removesuffix(SPECIAL_TOKENS[UNK])
            texts[place] = lead + phrase_table.get(said, said)
    return texts
