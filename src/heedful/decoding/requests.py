"""What is asked: a request as a model understands it, in tokens.

Law: what cannot be kept to is refused before anything is decoded, by the number of its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from heedful.decoding.config import DecodingConfig
from heedful.decoding.forbidden_text import ForbiddenText, VocabularyIndex, contains_phrase
from heedful.decoding.translation import check_word_tokenizer
from heedful.errors import ConfigError, DataError
from heedful.search import DisjunctiveConstraint, LogitsProcessor, require_phrase
from heedful.search.constraints import ConstraintSet
from heedful.tokenization.tokenizer import CharacterTokenizer, Normalizer, Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import UNK

# Requests: what is wanted of the output of one text?

Phrases = Sequence[str | Sequence[str]]
"""Texts, each a phrase; a list among them stands for one of several."""


class Request(NamedTuple):
    """A text to be translated, and what its output is to be like, beside the settings."""

    text: str
    prefix: str = ""  # what the output begins with
    required_phrases: Phrases = ()  # what it contains
    forbidden_phrases: Sequence[str] = ()  # what it does not
    target: str | None = None  # the output itself, which is then judged and not searched for

    @property
    def is_unconstrained(self) -> bool:
        """Whether nothing is said of what the output holds."""
        return not self.prefix and not self.required_phrases and self.target is None


def to_request(text: str | Request) -> Request:
    """Let a plain text stand for a request without wishes."""
    return Request(text) if isinstance(text, str) else text


# Phrasing: which tokens say a phrase?
#
# A phrase is cut as the target tokenizer cuts a text of its own, so that words and subwords stand
# with the space before them, at the beginning of an output as within. A phrase that begins with a
# sign, such as ", which", is also met where nothing parts it from what stands before. What holds: an
# output that must say a phrase contains it. It begins where a word begins, unless tokens are
# characters; its last word may go on, where tokens without a space before them follow. "Horto" and
# "horto" are two words: name both as one of several where either will do.


def alternatives(phrase: str | Sequence[str]) -> tuple[str, ...]:
    """List the texts of which one will do."""
    return (phrase,) if isinstance(phrase, str) else tuple(phrase)


def tokenize_constraints(
    tokenizer: Tokenizer, phrases: Phrases, *, location: str
) -> list[DisjunctiveConstraint]:
    """Say by tokens what an output must contain."""
    return [
        require_phrase(
            *(
                cut
                for text in alternatives(each)
                for cut in _tokenizations(tokenizer, text.strip(), location=location)
            )
        )
        for each in phrases
    ]


def tokenize_prefix(tokenizer: Tokenizer, text: str, *, location: str) -> list[int]:
    """Say by tokens what an output begins with.

    White space at its end is left to the next token, which brings its own; characters do not.
    """
    prefix = text if isinstance(tokenizer, CharacterTokenizer) else text.rstrip()
    ids = tokenizer.encode(prefix)
    if UNK in ids:
        raise _no_tokens_error(prefix, location)
    return ids


def _tokenizations(tokenizer: Tokenizer, phrase: str, *, location: str) -> list[list[int]]:
    cuts = [tokenizer.encode(phrase)]
    if not phrase[:1].isalnum():
        before = tokenizer.encode("a")
        after = tokenizer.encode("a" + phrase)
        if after[: len(before)] == before:
            cuts.append(after[len(before) :])
    known = [cut for cut in cuts if cut and UNK not in cut]
    if not known:
        raise _no_tokens_error(phrase, location)
    return known


def _no_tokens_error(phrase: str, location: str) -> DataError:
    return DataError(
        location,
        f"the model has no tokens to say {phrase!r} with",
        "use words that it was trained on, or train with `type: subword`, which knows all",
    )


# Wishes: which of them can no output of a text fulfil?


def check_no_constraints_on_target(request: Request, *, location: str) -> None:
    """An output that is given cannot be changed."""
    if request.prefix or request.required_phrases or request.forbidden_phrases:
        raise DataError(
            location,
            "its output is given, and nothing can be wished of it",
            "leave out prefix, must and never, or the target",
        )


def check_no_empty_phrases(request: Request, *, location: str) -> None:
    """A phrase without text is in every output."""
    required = [alternatives(each) for each in request.required_phrases]
    is_empty = not all(phrases and all(map(str.strip, phrases)) for phrases in required)
    if is_empty or not all(map(str.strip, request.forbidden_phrases)):
        raise DataError(location, "an empty phrase says nothing", "leave it out")


def check_no_contradictions(
    required_phrases: Phrases,
    forbidden_phrases: Sequence[str],
    prefix: str,
    *,
    normalize: Normalizer,
    location: str,
) -> None:
    """Nothing can be said without saying what is part of it."""
    wanted = [alternatives(each) for each in required_phrases] + ([(prefix,)] if prefix else [])
    for phrase in forbidden_phrases:
        for each in wanted:
            if all(contains_phrase(normalize(text), normalize(phrase).strip()) for text in each):
                raise DataError(
                    location,
                    f"{each[0]!r} is to be said, and {phrase!r} never",
                    "leave out one of them",
                )


def check_constraints_fit(
    prefix: Sequence[int],
    constraints: Sequence[DisjunctiveConstraint],
    *,
    max_length: int,
    location: str,
) -> None:
    """All that an output must say has to fit into it."""
    constraint_set = ConstraintSet(constraints)
    progress = constraint_set.start()
    for token in prefix:
        progress = constraint_set.advance(progress, token)
    needed = len(prefix) + constraint_set.num_missing(progress)
    if needed > max_length:
        raise DataError(
            location,
            f"what its output must say takes {needed} tokens, and it may have {max_length}",
            "ask for less, or raise decoding.max_length_offset and decoding.max_length",
        )


class EncodedRequest(NamedTuple):
    """A text and what its output must be like."""

    request: Request
    request_index: int  # of the text among all that are translated; what is drawn depends on it
    source: list[int]  # tokens, without the end
    min_length: int  # tokens of the output
    max_length: int
    prefix: Sequence[int] = ()
    constraints: Sequence[DisjunctiveConstraint] = ()
    forbidden_phrases: LogitsProcessor | None = None
    target: list[int] | None = None  # what is to be judged, if anything is

    @property
    def is_empty(self) -> bool:
        """Whether the text is empty, and nothing is wished of its output."""
        return not self.source and self.request.is_unconstrained


class RequestEncoder:
    """Turns requests into tokens, by settings that hold for all of them."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig) -> None:
        self.tokenizers = tokenizers
        self.config = config
        if config.unk_replacement == "copy":
            check_word_tokenizer(tokenizers.target)
        self._forbidden = (
            ForbiddenText(config.forbidden_phrases, self._vocabulary_index)
            if config.forbidden_phrases
            else None
        )
        self._constraints = self._constraints_from_settings()

    def encode(
        self, requests: Sequence[Request], *, location: str, start_index: int
    ) -> list[EncodedRequest]:
        """Understand requests, numbered from `first`."""
        sources = self.tokenizers.source.encode_batch([request.text for request in requests])
        return [
            self._encode(request, source, number, location=f"{location}:{number}")
            for number, (request, source) in enumerate(
                zip(requests, sources, strict=True), start=start_index
            )
        ]

    def _encode(
        self, request: Request, source: list[int], number: int, *, location: str
    ) -> EncodedRequest:
        self._check_source_length(len(source), location)
        least, most = self._lengths(len(source) + 1)
        if request.target is not None:
            check_no_constraints_on_target(request, location=location)
            target = self.tokenizers.target.encode(request.target)
            return EncodedRequest(request, number, source, least, most, target=target)
        encoded = self._with_constraints(
            EncodedRequest(request, number, source, least, most), location=location
        )
        if not encoded.is_empty:
            check_constraints_fit(
                encoded.prefix, encoded.constraints, max_length=most, location=location
            )
        return encoded

    def _with_constraints(self, encoded: EncodedRequest, *, location: str) -> EncodedRequest:
        request, target = encoded.request, self.tokenizers.target
        if not (request.prefix or request.required_phrases or request.forbidden_phrases):
            return encoded._replace(
                constraints=self._constraints, forbidden_phrases=self._forbidden
            )
        self._check_constraints(request, location)
        never = (*self.config.forbidden_phrases, *request.forbidden_phrases)
        return encoded._replace(
            prefix=tokenize_prefix(target, request.prefix, location=location),
            constraints=[
                *self._constraints,
                *tokenize_constraints(target, request.required_phrases, location=location),
            ],
            forbidden_phrases=ForbiddenText(never, self._vocabulary_index)
            if request.forbidden_phrases
            else self._forbidden,
        )

    def _constraints_from_settings(self) -> list[DisjunctiveConstraint]:
        must, never, target = (
            self.config.required_phrases,
            self.config.forbidden_phrases,
            self.tokenizers.target,
        )
        try:
            check_no_contradictions(
                must, never, "", normalize=target.normalizer, location="decoding.required_phrases"
            )
            return tokenize_constraints(target, must, location="decoding.required_phrases")
        except DataError as error:  # what is wrong is a setting, and no text
            raise ConfigError(error.location, error.message, error.hint) from None

    def _lengths(self, source: int) -> tuple[int, int]:
        """The shortest and the longest output of a source of so many tokens, its end counted.

        What is longest by ratio gives way to what is shortest, and both to `max_length`.
        """
        settings = self.config
        least = max(settings.min_length, int(source * settings.min_length_ratio))
        most = int(source * settings.max_length_ratio + settings.max_length_offset)
        limit = settings.max_length or max(least, most)
        return min(least, limit), min(max(least, most), limit)

    def _check_constraints(self, request: Request, location: str) -> None:
        settings = self.config
        check_no_empty_phrases(request, location=location)
        if request.required_phrases and (sampling_setting := settings.sampling_setting):
            raise DataError(
                location,
                f"only a beam can say what it must, and outputs are drawn (decoding.{sampling_setting})",
                f"ask for nothing that must be said, or set decoding.{sampling_setting} to null",
            )
        check_no_contradictions(
            [*settings.required_phrases, *request.required_phrases],
            [*settings.forbidden_phrases, *request.forbidden_phrases],
            request.prefix,
            normalize=self.tokenizers.target.normalizer,
            location=location,
        )

    def _check_source_length(self, length: int, location: str) -> None:
        limit = self.config.max_source_length
        if length > limit:
            raise DataError(
                location,
                f"the text has {length} tokens, and this model takes at most {limit}",
                "split the text into sentences, or raise the limit with "
                "--set decoding.max_source_length=N",
            )

    @cached_property
    def _vocabulary_index(self) -> VocabularyIndex:
        return VocabularyIndex(self.tokenizers.target)
