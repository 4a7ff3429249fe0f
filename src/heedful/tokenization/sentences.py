"""Words in sentences: a word tokenizer that marks where one sentence ends and another begins.

A sentence ends after ".", "!", "?" and their like, closing quotes included; the mark is a token of
its own between two sentences, with the first id of the vocabulary. Invariant: without the marks,
tokens are those of the word tokenizer.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from typing_extensions import override

from heedful.tokenization.standalone import join_words, split_words
from heedful.tokenization.tokenizer import (
    VocabularyTokenizer,
    VocabularyTokenizerConfig,
    WordTokenizer,
)
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, Vocabulary

SENTENCE_END = "<sentence>"
"""The mark; `split_words` separates "<" from letters, so no text has it as a word."""
SENTENCE_END_ID = NUM_SPECIAL_TOKENS
_END_SIGNS = frozenset(".!?\u2026\u3002\uff01\uff1f")
_CLOSING_SIGNS = frozenset("\"')]\u201d\u2019\u00bb")


def split_sentences(words: Sequence[str]) -> list[list[str]]:
    """Group words into sentences; abbreviations such as "Mr." also end one."""
    sentences: list[list[str]] = [[]]
    has_ended = False
    for word in words:
        sign = word.strip()
        is_end = sign in _END_SIGNS
        # A closing sign has no space before it.
        if has_ended and sign and not is_end and word not in _CLOSING_SIGNS:
            sentences.append([])
            has_ended = False
        has_ended = has_ended or is_end
        sentences[-1].append(word)
    return sentences


class SentenceWordTokenizer(WordTokenizer):
    """Words, signs and white space, with a mark between sentences."""

    @staticmethod
    @override
    def tokenize(text: str) -> list[str]:
        first, *others = split_sentences(split_words(text))
        return [*first, *(word for sentence in others for word in (SENTENCE_END, *sentence))]

    @staticmethod
    @override
    def detokenize(tokens: list[str]) -> str:
        return join_words([token for token in tokens if token != SENTENCE_END])


class SentenceWordTokenizerConfig(VocabularyTokenizerConfig):
    """Words with a mark between sentences, for `hierarchical` encoders."""

    tokenizer_class = SentenceWordTokenizer
    type: Literal["sentence-word"] = "sentence-word"
    open_vocabulary: Literal[False] = False
    """The mark is no word to copy."""

    @override
    def train(self, texts: Iterable[str]) -> VocabularyTokenizer:
        words = super().train(texts).vocabulary.tokens
        tokens = [SENTENCE_END, *(word for word in words if word != SENTENCE_END)]
        return self._build(Vocabulary(tokens[: self.max_vocab_size - NUM_SPECIAL_TOKENS]))
