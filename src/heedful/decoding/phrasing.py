"""Phrasing: which tokens say a phrase?

A phrase is cut as the target tokenizer cuts a text of its own, so that words and subwords stand
with the space before them, at the beginning of an output as within. A phrase that begins with a
sign, such as ", which", is also met where nothing parts it from what stands before. What holds: an
output that must say a phrase contains it. It begins where a word begins, unless tokens are
characters; its last word may go on, where tokens without a space before them follow. "Horto" and
"horto" are two words: name both as one of several where either will do.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.decoding.requests import Phrases
from heedful.errors import DataError
from heedful.search import Must, must_say
from heedful.text.tokenizers import CharacterTokenizer, Tokenizer
from heedful.text.vocabulary import UNK


def alternatives(phrase: str | Sequence[str]) -> tuple[str, ...]:
    """List the texts of which one will do."""
    return (phrase,) if isinstance(phrase, str) else tuple(phrase)


def cut_musts(tokenizer: Tokenizer, phrases: Phrases, *, at: str) -> list[Must]:
    """Say by tokens what an output must contain."""
    return [
        must_say(
            *(cut for text in alternatives(each) for cut in _cuts(tokenizer, text.strip(), at=at))
        )
        for each in phrases
    ]


def cut_prefix(tokenizer: Tokenizer, text: str, *, at: str) -> list[int]:
    """Say by tokens what an output begins with.

    White space at its end is left to the next token, which brings its own; characters do not.
    """
    prefix = text if isinstance(tokenizer, CharacterTokenizer) else text.rstrip()
    ids = tokenizer.encode(prefix)
    if UNK in ids:
        raise _unsayable(prefix, at)
    return ids


def _cuts(tokenizer: Tokenizer, phrase: str, *, at: str) -> list[list[int]]:
    cuts = [tokenizer.encode(phrase)]
    if not phrase[:1].isalnum():
        before = tokenizer.encode("a")
        after = tokenizer.encode("a" + phrase)
        if after[: len(before)] == before:
            cuts.append(after[len(before) :])
    known = [cut for cut in cuts if cut and UNK not in cut]
    if not known:
        raise _unsayable(phrase, at)
    return known


def _unsayable(phrase: str, at: str) -> DataError:
    return DataError(
        at,
        f"the model has no tokens to say {phrase!r} with",
        "use words that it was trained on, or train with `kind: subword`, which knows all",
    )
