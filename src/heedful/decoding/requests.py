"""Requests: a text with constraints on its output, and its encoding as token ids.

A phrase is tokenized like a text of its own, so that words and subwords carry the space before
them. A phrase that starts with punctuation may also follow the previous word without a space.
Invariant: whatever no output can satisfy is reported before decoding, with the index of its text.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal, NamedTuple
from warnings import warn

from heedful.decoding.config import DecodingConfig, Phrases, alternatives, has_empty_phrase
from heedful.decoding.forbidden_text import ForbiddenText, VocabularyIndex, contains_phrase
from heedful.errors import ConfigError, DataError, check, format_count
from heedful.search import DisjunctiveConstraint, LogitsProcessor, require_phrase
from heedful.search.constraints import ConstraintSet
from heedful.tokenization.tokenizer import CharacterTokenizer, Tokenizer, WordTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, UNK

TooLong = Literal["error", "skip", "cut"]
"""What happens to a text of more than `max_source_length` tokens: a DataError; an empty output; or
the output of its beginning, in whole words where it has several."""

_SHOWN_LENGTH = 20  # characters of a text that was cut, in messages

_check_data = partial(check, error=DataError)


class Request(NamedTuple):
    """A text to translate, with constraints on top of those of the settings."""

    text: str
    prefix: str = ""  # of the output
    required_phrases: Phrases = ()
    forbidden_phrases: Sequence[str] = ()
    target: str | None = None  # an output to score instead of searching
    prefix_tokens: Sequence[int] = ()  # as token ids, where a text would be tokenized otherwise

    @property
    def has_constraints(self) -> bool:
        """Whether it has constraints of its own."""
        has_prefix = self.prefix or self.prefix_tokens
        return bool(has_prefix or self.required_phrases or self.forbidden_phrases)

    def to_json(self) -> str | dict[str, Any]:
        """Return what `Translator.parse_json` reads: the text, or an object with constraints."""
        default = Request("")._asdict() | {"text": None}
        fields = {name: value for name, value in self._asdict().items() if value != default[name]}
        return fields if len(fields) > 1 else self.text


class RequestControl(NamedTuple):
    """What a server decides about requests, by their index, while they are decoded."""

    is_cancelled: Callable[[int], bool]
    """Whether the output is not needed any more; it then ends, or is empty."""
    seed_key: Callable[[int], int]
    """The number that seeds what is sampled, instead of the index."""
    on_step: Callable[[int], object] = lambda num_hypotheses: None
    """Is called at each step of a search on the CPU."""


def to_request(text: str | Request) -> Request:
    """Return a plain text as a request without constraints."""
    return text if isinstance(text, Request) else Request(text)


class EncodedRequest(NamedTuple):
    """A request as token ids."""

    request: Request
    request_index: int  # among all texts, from 1; seeds the samples of this text
    source: list[int]  # without EOS
    min_length: int  # of the output
    max_length: int
    prefix: Sequence[int] = ()
    constraints: Sequence[DisjunctiveConstraint] = ()
    forbidden_phrases: LogitsProcessor | None = None
    target: list[int] | None = None
    is_skipped: bool = False  # because the text is too long; `request` is then the text alone

    @property
    def is_empty(self) -> bool:
        """True if the text is skipped, or empty without constraints: its output is then empty."""
        request = self.request
        has_prefix = request.prefix or request.prefix_tokens
        is_free = not has_prefix and not request.required_phrases and request.target is None
        return self.is_skipped or (not self.source and is_free)


class RequestEncoder:
    """Encodes requests under the constraints and limits of the settings."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig) -> None:
        self.tokenizers, self.config = tokenizers, config
        keeps_unk = config.unk_replacement == "keep"
        is_valid = keeps_unk or isinstance(tokenizers.target, WordTokenizer)
        message = "needs unknown words, and the target tokenizer has none"
        hint = "set decoding.unk_replacement to keep, or use a target tokenizer of `type: word`"
        check(is_valid, "decoding.unk_replacement", message, hint)
        self._forbidden = self._forbid(config.forbidden_phrases)
        required, location = config.required_phrases, "decoding.required_phrases"
        try:
            self._check_no_contradictions(Request(""), location)
            self._constraints = tokenize_constraints(tokenizers.target, required, location=location)
        except DataError as error:  # the cause is a setting, not a text
            raise ConfigError(error.location, error.message, error.hint) from None

    def encode(
        self,
        requests: Sequence[Request],
        *,
        location: str,
        start_index: int,
        too_long: TooLong = "error",
        report: Callable[[str], None] = warn,
    ) -> list[EncodedRequest]:
        """Encode requests, numbered from `start_index`; report those that are skipped or cut."""
        sources, limit, encoded = self.encode_sources(requests), self.config.max_source_length, []
        for index, (request, source) in enumerate(
            zip(requests, sources, strict=True), start=start_index
        ):
            text_location = f"{location}:{index}"
            if too_long == "error" or len(source) <= limit:
                encoded.append(self._encode(request, source, index, text_location))
                continue
            count = format_count(len(source), "token")
            size = f"{text_location}: the text has {count}, but the limit is {limit}"
            if too_long == "skip":
                report(f"{size}: its output is empty")
                text = Request(request.text)
                encoded.append(EncodedRequest(text, index, source, 0, 0, is_skipped=True))
            else:
                shorter = self._cut(request)
                report(f"{size}: cut after {shorter.text[-_SHOWN_LENGTH:]!r}")
                (shorter_source,) = self.encode_sources([shorter])
                encoded.append(self._encode(shorter, shorter_source, index, text_location))
        return encoded

    def _cut(self, request: Request) -> Request:
        """Return a request with the beginning of its text that `max_source_length` allows."""

        def fits(text: str) -> bool:
            (source,) = self.encode_sources([request._replace(text=text)])
            return len(source) <= self.config.max_source_length

        text, length, too_many = request.text, 0, len(request.text)
        while too_many - length > 1:  # text[:length] fits, and text[:too_many] does not
            middle = (length + too_many) // 2
            length, too_many = (middle, too_many) if fits(text[:middle]) else (length, middle)
        beginning = text[:length]
        words = beginning.rsplit(None, 1)
        if len(words) == 2 and not text[length].isspace() and fits(words[0]):
            beginning = words[0]
        return request._replace(text=beginning.rstrip())

    def encode_sources(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the source ids of requests, without EOS."""
        texts = [request.text for request in requests]
        return self.tokenizers.encode_pairs(texts, [""] * len(texts))[0]

    def _encode(
        self, request: Request, source: list[int], index: int, location: str
    ) -> EncodedRequest:
        limit = self.config.max_source_length
        message = (
            f"the text has {format_count(len(source), 'token')}, but max_source_length is {limit}"
        )
        hint = "split the text into sentences, or raise the limit with "
        hint += "--set decoding.max_source_length=N"
        _check_data(len(source) <= limit, location, message, hint)
        encoded = EncodedRequest(
            request, index, source, *self.config.length_limits(len(source) + 1)
        )
        if request.target is not None:
            message = "a given target cannot have constraints"
            hint = "remove prefix, required_phrases and forbidden_phrases, or the target"
            _check_data(not request.has_constraints, location, message, hint)
            tokenizer = self.tokenizers.for_source(request.text).target
            return encoded._replace(target=tokenizer.encode(request.target))
        encoded = self._add_constraints(encoded, location)
        if not encoded.is_empty:
            needed = ConstraintSet(encoded.constraints).num_tokens_needed(encoded.prefix)
            limit = encoded.max_length
            message = f"prefix and required phrases need {format_count(needed, 'token')}, "
            message += f"but the limit is {limit}"
            hint = "require less, or raise decoding.max_length_offset and decoding.max_length"
            _check_data(needed <= limit, location, message, hint)
        return encoded

    def _add_constraints(self, encoded: EncodedRequest, location: str) -> EncodedRequest:
        """Add the constraints of the settings, and those of the request where it has any."""
        request, index = encoded.request, None
        target = self.tokenizers.for_source(request.text).target
        encoded = encoded._replace(constraints=self._constraints, forbidden_phrases=self._forbidden)
        if target.is_open and (self.config.forbidden_phrases or request.forbidden_phrases):
            index = self._vocabulary_index.for_source(target, encoded.source)
            processor = self._forbid(self.config.forbidden_phrases, index)
            encoded = encoded._replace(forbidden_phrases=processor)
        if not request.has_constraints:
            return encoded
        for phrases in (request.required_phrases, request.forbidden_phrases):
            is_full = not has_empty_phrase(phrases)
            _check_data(is_full, location, "a phrase is empty", "remove the empty phrase")
        setting = self.config.sampling_setting
        message = f"required_phrases work only with beam search, but decoding.{setting} is set"
        hint = f"remove required_phrases, or set decoding.{setting} to null"
        _check_data(not (request.required_phrases and setting), location, message, hint)
        if request.prefix_tokens:
            check_prefix_tokens(request, target, location=location)
            request = request._replace(prefix=target.decode(list(request.prefix_tokens)))
        self._check_no_contradictions(request, location)
        prefix: Sequence[int] = request.prefix_tokens or tokenize_prefix(
            target, request.prefix, location=location
        )
        required = tokenize_constraints(target, request.required_phrases, location=location)
        encoded = encoded._replace(prefix=prefix, constraints=[*self._constraints, *required])
        if request.forbidden_phrases:
            forbidden = (*self.config.forbidden_phrases, *request.forbidden_phrases)
            encoded = encoded._replace(forbidden_phrases=self._forbid(forbidden, index))
        return encoded

    def _forbid(
        self, phrases: Sequence[str], index: VocabularyIndex | None = None
    ) -> ForbiddenText | None:
        return ForbiddenText(phrases, index or self._vocabulary_index) if phrases else None

    @cached_property
    def _vocabulary_index(self) -> VocabularyIndex:
        return VocabularyIndex(self.tokenizers.target)

    def _check_no_contradictions(self, request: Request, location: str) -> None:
        """Raise DataError if a forbidden phrase is part of the prefix or of a required phrase."""
        config, normalize = self.config, self.tokenizers.target.normalizer
        required = alternatives([*config.required_phrases, *request.required_phrases])
        required += [(request.prefix,)] * bool(request.prefix)
        for forbidden in (*config.forbidden_phrases, *request.forbidden_phrases):
            text = normalize(forbidden).strip()
            for phrases in required:
                is_blocked = all(contains_phrase(normalize(phrase), text) for phrase in phrases)
                message = f"{phrases[0]!r} is required, but {forbidden!r} is forbidden"
                _check_data(not is_blocked, location, message, "remove one of them")


def batch_requests(
    requests: Sequence[EncodedRequest], config: DecodingConfig
) -> Iterator[list[EncodedRequest]]:
    """Batch requests of similar length, those with a target separately; leave out empty ones."""
    with_target = [request for request in requests if request.target is not None]
    without = [request for request in requests if request.target is None and not request.is_empty]
    for group, rows_per_request in ((with_target, 1), (without, config.num_outputs)):
        remaining = sorted(group, key=lambda request: len(request.source), reverse=True)
        while remaining:
            max_length = len(remaining[0].source) + 1
            batch_size = max(1, config.max_batch_tokens // (max_length * rows_per_request))
            yield remaining[:batch_size]
            remaining = remaining[batch_size:]


def tokenize_constraints(
    tokenizer: Tokenizer, phrases: Phrases, *, location: str
) -> list[DisjunctiveConstraint]:
    """Return the constraints that required phrases mean in token ids."""
    constraints = []
    for texts in alternatives(phrases):
        tokenizations = [_tokenizations(tokenizer, text.strip(), location) for text in texts]
        constraints.append(require_phrase(*chain(*tokenizations)))
    return constraints


def _tokenizations(tokenizer: Tokenizer, phrase: str, location: str) -> list[list[int]]:
    tokenizations = [tokenizer.encode_phrase(phrase)]
    if not phrase[:1].isalnum():
        before, after = tokenizer.encode_phrase("a"), tokenizer.encode_phrase("a" + phrase)
        if after[: len(before)] == before:
            tokenizations.append(after[len(before) :])
    encodings = [ids for ids in tokenizations if ids and UNK not in ids]
    _check_known_words(bool(encodings), phrase, location)
    return encodings


def tokenize_prefix(tokenizer: Tokenizer, text: str, *, location: str) -> list[int]:
    """Return the token ids of a prefix.

    Trailing whitespace is left to the next token, which starts with it, except in characters.
    """
    prefix = text if isinstance(tokenizer, CharacterTokenizer) else text.rstrip()
    ids = tokenizer.encode(prefix)
    _check_known_words(UNK not in ids, prefix, location)
    return ids


def check_prefix_tokens(request: Request, tokenizer: Tokenizer, *, location: str) -> None:
    """Raise DataError for ids that no output has, or a prefix that is also a text."""
    message = "the prefix is given as a text and as tokens"
    _check_data(not request.prefix, location, message, "give prefix or prefix_tokens")
    valid = range(UNK, len(tokenizer))
    for token in request.prefix_tokens:
        is_valid = token in valid and token not in (BOS, EOS)
        message = f"prefix_tokens has {token}, but tokens of outputs are {UNK} and "
        message += f"{NUM_SPECIAL_TOKENS} to {len(tokenizer) - 1}"
        _check_data(is_valid, location, message, "give ids of tokens, without BOS and EOS")


def _check_known_words(is_known: bool, phrase: str, location: str) -> None:
    message = f"the vocabulary has no tokens for {phrase!r}"
    hint = "use words of the training data, or train with `type: subword`"
    _check_data(is_known, location, message, hint)
