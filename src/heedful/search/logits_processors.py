"""Logits processors: they lower or forbid tokens before the next one is selected.

They receive log-probabilities, as in Hugging Face's beam search, and depend on the generated tokens
alone. Invariants: a processor never raises a log-probability, but for a forced first token, and
never creates NaN; rows are independent; processors together never forbid every token, as EOS or the
forced token remains.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from heedful.errors import check, format_count
from heedful.shapes import Float, Int, Lengths

LogProbs = Float[Tensor, "R N"]  # one row per hypothesis
Tokens = Int[Tensor, "R T"]  # tokens of each hypothesis, without BOS
SentenceIds = Int[Tensor, "R"]  # index of the sentence that each hypothesis belongs to


class LogitsProcessor(ABC):
    """A rule about the next token of each hypothesis."""

    is_hard: ClassVar[bool] = False
    """True if required phrases give way to this processor, too."""

    @abstractmethod
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        """Return the log-probabilities of the next token, lower or -inf where it may not follow."""

    def check_lengths(self, max_lengths: Sequence[int]) -> None:
        """Raise ConfigError if outputs of at most these lengths cannot satisfy the rule."""
        return


def apply_processors(
    processors: Sequence[LogitsProcessor],
    log_probs: LogProbs,
    generated: Tokens,
    sentence_ids: SentenceIds,
    *,
    eos: int | None,
) -> tuple[LogProbs, LogProbs]:
    """Apply the hard processors, then the others; return the final and the hard-only result.

    A row without any allowed token falls back to EOS, or to the token that is forced.
    """
    results = [log_probs]
    for is_hard in (True, False):
        allowed = results[-1]
        for processor in processors:
            if processor.is_hard == is_hard:
                allowed = processor.apply(allowed, generated, sentence_ids)
        if allowed is not results[-1]:
            empty_rows = (allowed.amax(dim=-1) == -torch.inf).nonzero().flatten()
            if len(empty_rows):
                fallback = _fallback(results[-1][empty_rows], eos)
                allowed = allowed.index_copy(0, empty_rows, fallback)
        results.append(allowed)
    _, hard_log_probs, final = results
    return final, hard_log_probs


def _fallback(log_probs: LogProbs, eos: int | None) -> LogProbs:
    """Allow only EOS; every token where there is no EOS or where EOS is impossible."""
    if eos is None:
        return log_probs
    others = torch.arange(log_probs.size(1), device=log_probs.device) != eos
    can_end = log_probs[:, eos, None] > -torch.inf
    return log_probs.masked_fill(others & can_end, -torch.inf)


class ForbiddenTokens(LogitsProcessor):
    """Tokens that no output contains."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        if not self.tokens:
            return log_probs
        ids = torch.tensor(self.tokens, device=log_probs.device)
        return log_probs.index_fill(1, ids, -torch.inf)


class ForbiddenPhrases(LogitsProcessor):
    """Token sequences that no output contains: the last token may not follow the others."""

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        check(all(phrases), "forbidden_phrases", "a phrase is empty", "remove the empty phrase")
        self.phrases = tuple(tuple(phrase) for phrase in phrases)

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        log_probs = log_probs.clone() if self.phrases else log_probs
        for *prefix, last in self.phrases:
            if len(prefix) <= generated.size(1):
                suffix = generated[:, generated.size(1) - len(prefix) :]
                completes = (suffix == torch.tensor(prefix, device=suffix.device)).all(dim=1)
                log_probs[:, last].masked_fill_(completes, -torch.inf)
        return log_probs


class ForcedPrefix(LogitsProcessor):
    """Tokens that the outputs of each sentence start with; a prefix may be empty."""

    is_hard = True

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.prefixes = [list(prefix) for prefix in prefixes]

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        depth = generated.size(1)
        next_tokens = [prefix[depth] if depth < len(prefix) else -1 for prefix in self.prefixes]
        if max(next_tokens, default=-1) < 0:
            return log_probs
        forced = torch.tensor(next_tokens, device=sentence_ids.device)[sentence_ids].unsqueeze(1)
        others = torch.arange(log_probs.size(1), device=log_probs.device) != forced  # (R, N)
        return log_probs.masked_fill(others & (forced >= 0), -torch.inf)

    @override
    def check_lengths(self, max_lengths: Sequence[int]) -> None:
        for index, (prefix, limit) in enumerate(zip(self.prefixes, max_lengths, strict=True)):
            message = (
                f"the prefix has {format_count(len(prefix), 'token')}, but max_length is {limit}"
            )
            hint = "shorten the prefix, or raise max_length"
            check(len(prefix) <= limit, f"prefix of sentence {index + 1}", message, hint)


class ForcedBOSToken(LogitsProcessor):
    """The token that every output begins with, at no cost, as in Hugging Face's search."""

    is_hard = True

    def __init__(self, token: int) -> None:
        self.token = token

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        if generated.size(1):
            return log_probs
        forced = torch.full_like(log_probs, -torch.inf)
        forced[:, self.token] = 0
        return forced


class CancelledSentences(LogitsProcessor):
    """Sentences whose outputs end at once, as nobody waits for them any more."""

    is_hard = True

    def __init__(
        self,
        is_cancelled: Callable[[int], bool],
        num_sentences: int,
        *,
        eos: int,
        on_step: Callable[[int], object] = lambda num_hypotheses: None,
    ) -> None:
        """`on_step` is called at each step."""
        self.is_cancelled, self.sentences, self.eos = is_cancelled, range(num_sentences), eos
        self.on_step = on_step

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        self.on_step(len(sentence_ids))
        cancelled = list(map(self.is_cancelled, self.sentences))
        if not any(cancelled):
            return log_probs
        rows = torch.tensor(cancelled, device=sentence_ids.device)[sentence_ids].unsqueeze(1)
        others = torch.arange(log_probs.size(1), device=log_probs.device) != self.eos
        return log_probs.masked_fill(rows & others, -torch.inf)


class PerSentenceProcessor(LogitsProcessor):
    """Another processor, or none, for each sentence."""

    def __init__(self, processors: Sequence[LogitsProcessor | None]) -> None:
        for processor in processors:
            assert processor is None or not processor.is_hard, f"{processor} is hard"
        self.processors = list(processors)

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        log_probs = log_probs.clone()
        for sentence in sentence_ids.unique().tolist():
            if processor := self.processors[sentence]:
                rows = (sentence_ids == sentence).nonzero().flatten()
                inputs = (log_probs[rows], generated[rows], sentence_ids[rows])
                log_probs[rows] = processor.apply(*inputs)
        return log_probs


def lengths_from_ratio(lengths: Lengths, ratio: float, extra: int = 0) -> Lengths:
    """Return floor(ratio * length + extra) for each source length."""
    return (lengths * ratio + extra).long()


class MinLength(LogitsProcessor):
    """EOS is forbidden until a hypothesis has the minimum length, without BOS, of its sentence."""

    def __init__(self, lengths: Lengths, *, eos: int) -> None:
        self.lengths, self.eos = lengths, eos
        self._largest = int(lengths.max()) if len(lengths) else 0

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        if generated.size(1) >= self._largest:
            return log_probs
        log_probs = log_probs.clone()
        is_short = generated.size(1) < self.lengths[sentence_ids]
        log_probs[:, self.eos].masked_fill_(is_short, -torch.inf)
        return log_probs

    @override
    def check_lengths(self, max_lengths: Sequence[int]) -> None:
        min_lengths = self.lengths.tolist()
        for index, (minimum, limit) in enumerate(zip(min_lengths, max_lengths, strict=True)):
            if minimum > limit:
                message = f"min_length is {minimum}, but max_length is {limit}"
                hint = "lower min_length, or raise max_length"
                check(False, f"lengths of sentence {index + 1}", message, hint)


class NoRepeatNGram(LogitsProcessor):
    """No n-gram occurs twice in an output (Paulus et al. 2018, section 2.5)."""

    def __init__(self, ngram_size: int) -> None:
        assert ngram_size >= 1, f"ngram_size must be at least 1, but is {ngram_size}"
        self.ngram_size = ngram_size

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        if generated.size(1) < self.ngram_size:
            return log_probs
        ngrams = generated.unfold(1, self.ngram_size, 1)  # (R, ngrams, ngram_size)
        prefix = generated[:, generated.size(1) - self.ngram_size + 1 :].unsqueeze(1)
        would_repeat = (ngrams[..., :-1] == prefix).all(dim=-1)
        bound = torch.where(would_repeat, -torch.inf, torch.inf).to(log_probs)
        return log_probs.scatter_reduce(1, ngrams[..., -1], bound, "amin")


class RepetitionPenalty(LogitsProcessor):
    """log p * penalty for each token that was generated before (Keskar et al. 2019, section 4.1).

    The paper divides logits, which raises negative ones. Log-probabilities are never positive, so
    multiplying always lowers them; the result is not normalized.
    """

    def __init__(self, penalty: float) -> None:
        assert penalty >= 1, f"penalty must be at least 1, but is {penalty}"
        self.penalty = penalty

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        return log_probs.scatter(1, generated, log_probs.gather(1, generated) * self.penalty)
