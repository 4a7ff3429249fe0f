"""Translations: the results of decoding, with log-probabilities and attention weights.

`TranslationBuilder` makes them from token ids. Unknown words are replaced here, after the search,
so that `tokens` still show them. Invariants: `tokens`, `weights` and `word_ids` have one entry per
token, `log_probs` one more for EOS; `source_tokens` and `source_word_ids` end with EOS, which
belongs to no word; the sum of `log_probs` is `log_prob`; token texts concatenate to the text.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_files import read_lines
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest
from heedful.decoding.strategies import DecodingOutput
from heedful.errors import DataError, check
from heedful.inspection.attention_layers import NO_WORD_ID, AttentionLayer, TokenAxis, without_words
from heedful.inspection.attention_map import AttentionMap, render_notebook_html
from heedful.search import Hypothesis, Node
from heedful.tokenization.standalone import split_words
from heedful.tokenization.tokenizer import Tokenizer, VocabularyTokenizer, WordTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import EOS, SPECIAL_TOKENS, UNK

EOS_LABEL, BOS_LABEL = "(end)", "(start)"
_DIGITS = 6  # of numbers in JSON
_MAX_CONTEXT = 3  # previous tokens that may complete a character with this one: UTF-8 has 4 bytes


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
    alternatives: tuple["Translation", ...] = ()  # the next best outputs, or further samples
    tree: list[Node[str]] | None = None  # the whole search, if it was requested
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested
    copy_probs: NDArray[np.float32] | None = None  # (tokens,), p(copied | token), if it copies
    token_ids: Sequence[int] = ()  # for `Request.prefix_tokens`

    @property
    def attention_map(self) -> AttentionMap:
        """The attention weights and copied shares, ready to be drawn."""
        return AttentionMap(
            self.source_tokens,
            self.tokens,
            self.weights,
            title=self.source,
            output=self.text,
            copy_probs=None if self.copy_probs is None else self.copy_probs_to_json(),
        )

    def copy_probs_to_json(self) -> list[float]:
        """Return the copied share of each token; nothing if the model does not copy."""
        shares = np.zeros(0) if self.copy_probs is None else self.copy_probs
        return shares.astype(np.float64).round(_DIGITS).tolist()

    def to_json(self, *, weights: bool = True, tree: bool = False) -> dict[str, Any]:
        """Return plain values for JSON; docs/translate.md describes each field."""
        fields = {
            "source": self.source,
            "source_tokens": self.source_tokens,
            **({"source_word_ids": self.source_word_ids} if weights else {}),
            **self._output_to_json(weights=weights),
            "alternatives": [
                output._output_to_json(weights=weights) for output in self.alternatives
            ],
        }
        if tree and self.tree is not None:
            fields["tree"] = tree_to_json(self.tree)
        return fields

    def _output_to_json(self, *, weights: bool) -> dict[str, Any]:
        fields = output_to_json(self)
        if self.copy_probs is not None:
            fields["copy_probs"] = self.copy_probs_to_json()
        if weights:
            fields["weights"] = self.weights.astype("float64").round(_DIGITS).tolist()
            fields["word_ids"] = self.word_ids
            fields["eos_weights"] = self.eos_weights.astype("float64").round(_DIGITS).tolist()
        return fields

    def _repr_html_(self) -> str:
        return render_notebook_html(self.attention_map)


def output_to_json(output: Any) -> dict[str, Any]:
    """Return what translations and captions have in common as plain values for JSON."""
    return {
        "text": output.text,
        "score": _to_number(output.score),
        "log_prob": _to_number(output.log_prob),
        "tokens": output.tokens,
        "log_probs": [_to_number(log_prob) for log_prob in output.log_probs.tolist()],
    }


def tree_to_json(nodes: Iterable[Node[str]]) -> list[dict[str, Any]]:
    """Return the nodes of a search as plain values for JSON."""
    scores = ("log_prob", "cumulative_log_prob")
    return [
        {**vars(node), **{name: _to_number(getattr(node, name)) for name in scores}}
        for node in nodes
    ]


def _to_number(value: float) -> float | None:
    """Round for JSON, which has no infinity: an impossible output has the score null."""
    return round(value, _DIGITS) if math.isfinite(value) else None


class TranslationBuilder:
    """Makes translations from decoded token ids."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig) -> None:
        self._token_texts = PairTokenTexts.from_tokenizers(tokenizers)
        self._replaces_unknown_words = config.unk_replacement == "copy"
        self._phrase_table = read_phrase_table(config.phrase_table) if config.phrase_table else {}

    def build(
        self,
        request: EncodedRequest,
        output: DecodingOutput,
        copy_probs: Sequence[NDArray[np.float32]] | None = None,
    ) -> Translation:
        """Return the first hypothesis with the others as its alternatives."""
        mappers = self._token_texts.for_source(request.request.text)
        source_texts = mappers.source.source_token_texts(request.source, request.request.text)
        best, *others = (
            self._build_translation(request, mappers, source_texts, hypothesis)._replace(
                copy_probs=None if copy_probs is None else copy_probs[index]
            )
            for index, hypothesis in enumerate(output.hypotheses)
        )
        tree, target = output.tree, mappers.target.tokenizer
        nodes = None if tree is None else [with_text(node, target) for node in tree]
        return best._replace(alternatives=tuple(others), tree=nodes)

    def build_text(self, request: EncodedRequest, tokens: Sequence[int]) -> str:
        """Return the text of an output."""
        mapper = self._token_texts.for_source(request.request.text).target
        return "".join(mapper.token_texts(tokens))

    def token_axes(
        self, request: EncodedRequest, tokens: Sequence[int]
    ) -> tuple[TokenAxis, TokenAxis]:
        """Return the tokens of source and output with their words."""
        text = request.request.text
        source_mapper, target_mapper = self._token_texts.for_source(text)
        source_texts = source_mapper.source_token_texts(request.source, text)
        source_tokens = source_mapper.tokenizer.ids_to_tokens(request.source)
        source = token_axis(source_tokens, source_texts).followed_by(without_words([EOS_LABEL]))
        target_tokens = target_mapper.tokenizer.ids_to_tokens(tokens)
        return source, token_axis(target_tokens, target_mapper.token_texts(tokens))

    def _build_translation(
        self,
        request: EncodedRequest,
        mappers: "PairTokenTexts",
        source_texts: Sequence[str],
        output: Hypothesis,
    ) -> Translation:
        num_source_tokens = len(request.source) + 1
        token_texts = mappers.target.token_texts(output.tokens)
        if self._replaces_unknown_words and UNK in output.tokens:
            token_texts = replace_unknown_words(
                token_texts, output, source_texts, phrase_table=self._phrase_table
            )
        text, source_words = "".join(token_texts), whitespace_words("".join(source_texts))
        return Translation(
            source=request.request.text,
            text=text if request.request.target is None else request.request.target,
            score=output.score,
            log_prob=output.log_prob,
            source_tokens=[*mappers.source.tokenizer.ids_to_tokens(request.source), EOS_LABEL],
            tokens=mappers.target.tokenizer.ids_to_tokens(output.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, :num_source_tokens],
            eos_weights=output.eos_weights[:num_source_tokens],
            source_word_ids=[*word_ids(source_texts, source_words), NO_WORD_ID],
            word_ids=word_ids(token_texts, whitespace_words(text)),
            token_ids=output.tokens,
        )


def display_outputs(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return output tokens as they are shown."""
    names = zip(ids, tokenizer.ids_to_tokens(ids), strict=True)
    return [EOS_LABEL if token == EOS else name for token, name in names]


def with_text(node: Node[int], tokenizer: Tokenizer) -> Node[str]:
    """Return a node of the search tree with the token as it is shown; the root has none."""
    (token,) = [None] if node.token is None else display_outputs([node.token], tokenizer)
    numbers = node.log_prob, node.cumulative_log_prob
    return Node(node.parent, token, *numbers, node.status, token_id=node.token)


def read_phrase_table(path: Path) -> dict[str, str]:
    """Read a source and a target word per line, separated by whitespace."""
    table: dict[str, str] = {}
    first_lines: dict[str, int] = {}
    check_data = partial(check, error=DataError)
    for line_number, line in enumerate(read_lines(str(path)), start=1):
        if not (words := line.split()):
            continue
        location = f"{path}:{line_number}"
        hint = "write a source word, a tab or a space, and a target word"
        check_data(len(words) == 2, location, f"expected 2 words, got {len(words)}", hint)
        source, target = words
        first_line = first_lines.setdefault(source, line_number)
        other = table.setdefault(source, target)
        message = f"{source!r} maps to {target!r} here, but to {other!r} in line {first_line}"
        check_data(other == target, location, message, "remove one of the lines")
    return table


def replace_unknown_words(
    token_texts: Sequence[str],
    output: Hypothesis,
    source_texts: Sequence[str],
    *,
    phrase_table: Mapping[str, str],
) -> list[str]:
    """Replace each UNK by the translation, or a copy, of the source word with most attention.

    This is PosUnk (Luong et al. 2015b, section 3.3) with positions given by attention (Jean et al.
    2015). Where the model attended to EOS or nowhere, UNK remains.
    """
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


class TokenTextMapper:
    """Maps token ids to the parts of the text that they encode."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._lengths: dict[int, int] = {}  # of the texts of tokens by themselves

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text that each token adds to the text before it."""
        decode = self.tokenizer.decode
        offset = len(decode([UNK]))
        text = decode([UNK, *ids])[offset:]
        for token in set(ids) - self._lengths.keys():
            self._lengths[token] = len(decode([UNK, token])) - offset
        lengths = [self._lengths[token] for token in ids]
        # Some bytes form a character only together, and some tokens are spaces only within a text.
        if sum(lengths) != len(text):
            starts = [max(0, position - _MAX_CONTEXT) for position in range(len(ids))]
            windows = [[UNK, *ids[start : end + 1]] for end, start in enumerate(starts)]
            lengths = [len(decode(window)) - len(decode(window[:-1])) for window in windows]
        ends = [*accumulate(lengths[:-1]), len(text)][: len(ids)]
        parts = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return _strip_leading_space(parts, len(text) - len(decode(ids)))

    def source_token_texts(self, ids: Sequence[int], text: str) -> list[str]:
        """Return the part of `text` that each of its tokens comes from, also for UNK."""
        if not isinstance(self.tokenizer, VocabularyTokenizer):
            return self.token_texts(ids)
        parts = self.tokenizer.tokenize(self.tokenizer.normalizer(text))
        return _strip_leading_space(parts, int(isinstance(self.tokenizer, WordTokenizer)))


class PairTokenTexts(NamedTuple):
    """Token texts of source and target."""

    source: TokenTextMapper
    target: TokenTextMapper

    @classmethod
    def from_tokenizers(cls, tokenizers: TokenizerPair) -> Self:
        """Return them for any source, or for that of an open vocabulary."""
        return cls(*map(TokenTextMapper, tokenizers))

    def for_source(self, text: str) -> Self:
        """Return itself, or, with an open vocabulary, the token texts of this source."""
        if not self.target.tokenizer.is_open:
            return self
        tokenizers = TokenizerPair(self.source.tokenizer, self.target.tokenizer)
        return self.from_tokenizers(tokenizers.for_source(text))


def _strip_leading_space(parts: list[str], num_characters: int) -> list[str]:
    """Remove the space that tokenizers assume before a text."""
    first = next((index for index, part in enumerate(parts) if part), None)
    if first is not None:
        parts[first] = parts[first][num_characters:]
    return parts


def whitespace_words(text: str) -> list[str]:
    """Split a text into words, each with the whitespace before it."""
    return re.findall(r"\s*\S+", text)


def token_axis(tokens: Sequence[str], token_texts: Sequence[str]) -> TokenAxis:
    """Return tokens with the words that their texts spell; a space belongs to the word after it."""
    words = whitespace_words("".join(token_texts))
    ids = word_ids(token_texts, words)
    for index in reversed(range(len(ids) - 1)):
        ids[index] = ids[index + 1] if ids[index] == NO_WORD_ID else ids[index]
    return TokenAxis(tokens, [word.strip() for word in words], ids)


def word_ids(token_texts: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the index of the word of each token; tokens and words spell the same text.

    A token belongs to the word of its first character that is not whitespace. Whitespace alone
    belongs to no word, and a byte that completes a character to the word of the token before it.
    """
    word_of_character = [index for index, word in enumerate(words) for _ in word]
    ids: list[int] = []
    position = 0
    for text in token_texts:
        num_spaces = len(text) - len(text.lstrip())
        if not text:
            ids.append(ids[-1] if ids else NO_WORD_ID)
        elif num_spaces == len(text):
            ids.append(NO_WORD_ID)
        else:
            ids.append(word_of_character[position + num_spaces])
        position += len(text)
    return ids
