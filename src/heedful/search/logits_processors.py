"""Lengths: how short and how long may an output be?

Lengths count tokens without begin and end symbols, one number for each sentence; `lengths_from_ratio` makes
them from the lengths of sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from heedful.errors import ConfigError, RunError
from heedful.shapes import Float, Int

# Rules: what may be said next?
#
# A rule looks at what hypotheses have said so far and changes the log-probabilities of what they
# say next. Laws: a rule only lowers or forbids (-inf); it never makes a NaN; rows do not know of one
# another; and several rules together never forbid everything: the end is always left, or else what
# is forced. A rule is a function of the tokens said, so a search carries nothing for it but those.


class LogitsProcessor(ABC):
    """Something to be kept to in every output."""

    is_hard: ClassVar[bool] = False
    """Whether even what an output must contain gives way to it."""

    @abstractmethod
    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Lower what should not follow on the tokens written so far, begin symbols not counted."""

    def validate(self, max_lengths: Sequence[int]) -> None:
        """Complain before the search, if outputs of at most these lengths cannot keep to it."""
        return


def apply_processors(
    processors: Sequence[LogitsProcessor],
    log_probs: Float[Tensor, "R N"],
    generated: Int[Tensor, "R T"],
    sentence_ids: Int[Tensor, "R"],
    *,
    eos: int | None,
) -> tuple[Float[Tensor, "R N"], Float[Tensor, "R N"]]:
    """Apply rules: give what all of them leave, and before that what the binding ones leave.

    Where all together would leave nothing, they leave the end, or what is forced.
    """
    hard_processors = [rule for rule in processors if rule.is_hard]
    others = [rule for rule in processors if not rule.is_hard]
    hard_log_probs = _apply_sequence(hard_processors, log_probs, generated, sentence_ids, eos)
    return _apply_sequence(others, hard_log_probs, generated, sentence_ids, eos), hard_log_probs


def _apply_sequence(
    processors: Sequence[LogitsProcessor],
    log_probs: Float[Tensor, "R N"],
    generated: Int[Tensor, "R T"],
    sentence_ids: Int[Tensor, "R"],
    eos: int | None,
) -> Float[Tensor, "R N"]:
    allowed_log_probs = log_probs
    for rule in processors:
        allowed_log_probs = rule.apply(allowed_log_probs, generated, sentence_ids)
    if allowed_log_probs is log_probs:
        return allowed_log_probs
    has_nothing = (allowed_log_probs.amax(dim=-1) == -torch.inf).nonzero().flatten()
    if len(has_nothing):
        allowed_log_probs = allowed_log_probs.index_copy(
            0, has_nothing, _fallback(log_probs[has_nothing], eos)
        )
    return allowed_log_probs


def _fallback(log_probs: Float[Tensor, "R N"], eos: int | None) -> Float[Tensor, "R N"]:
    """The end; but all there is where there is no end, or where it could not follow anyway."""
    if eos is None:
        return log_probs
    others = torch.arange(log_probs.size(1), device=log_probs.device) != eos
    can_end = log_probs[:, eos, None] > -torch.inf
    return log_probs.masked_fill(others & can_end, -torch.inf)


class ForbiddenTokens(LogitsProcessor):
    """Tokens that no output contains."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid them."""
        if not self.tokens:
            return log_probs
        ids = torch.tensor(self.tokens, device=log_probs.device)
        return log_probs.index_fill(1, ids, -torch.inf)


class ForbiddenPhrases(LogitsProcessor):
    """Phrases that no output contains: their last token may not follow on the others."""

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        for phrase in phrases:
            if not phrase:
                raise ConfigError(
                    "rules.never",
                    "an empty phrase is in every output, and cannot be forbidden",
                    "leave it out",
                )
        self.phrases = tuple(tuple(phrase) for phrase in phrases)

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid what would complete one."""
        log_probs = log_probs.clone() if self.phrases else log_probs
        for *opening, last in self.phrases:
            if len(opening) > generated.size(1):
                continue
            recent_tokens = generated[:, generated.size(1) - len(opening) :]
            would_complete = (
                recent_tokens == torch.tensor(opening, device=recent_tokens.device)
            ).all(dim=1)
            log_probs[:, last].masked_fill_(would_complete, -torch.inf)
        return log_probs


class ForcedPrefix(LogitsProcessor):
    """Tokens that each output begins with; sentences may have unlike ones, or none."""

    is_hard = True

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.prefixes = [list(prefix) for prefix in prefixes]

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Leave only the next token of each prefix; what is past its prefix is free."""
        depth = generated.size(1)
        next_prefix_tokens = [
            prefix[depth] if depth < len(prefix) else -1 for prefix in self.prefixes
        ]
        if max(next_prefix_tokens, default=-1) < 0:
            return log_probs
        wanted = torch.tensor(next_prefix_tokens, device=sentence_ids.device)[
            sentence_ids
        ].unsqueeze(1)  # (R, 1)
        others = torch.arange(log_probs.size(1), device=log_probs.device) != wanted
        return log_probs.masked_fill(others & (wanted >= 0), -torch.inf)

    def validate(self, max_lengths: Sequence[int]) -> None:
        """A prefix must fit."""
        for number, (prefix, limit) in enumerate(zip(self.prefixes, max_lengths, strict=True)):
            if len(prefix) > limit:
                raise ConfigError(
                    f"prefix of sentence {number + 1}",
                    f"it has {len(prefix)} tokens, but the output may have {limit}",
                    "give a shorter prefix, or let outputs be longer",
                )


class PerSentenceProcessor(LogitsProcessor):
    """A rule of its own for each sentence, or none."""

    def __init__(self, processors: Sequence[LogitsProcessor | None]) -> None:
        hard_log_probs = [rule for rule in processors if rule is not None and rule.is_hard]
        assert not hard_log_probs, (
            f"{type(hard_log_probs[0]).__name__} knows sentences apart by itself"
        )
        self.processors = list(processors)

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Let each rule see the rows of its sentence alone."""
        log_probs = log_probs.clone()
        for number in sentence_ids.unique().tolist():
            if (rule := self.processors[number]) is not None:
                rows = (sentence_ids == number).nonzero().flatten()
                log_probs[rows] = rule.apply(log_probs[rows], generated[rows], sentence_ids[rows])
        return log_probs


def lengths_from_ratio(lengths: Int[Tensor, "B"], ratio: float, extra: int = 0) -> Int[Tensor, "B"]:
    """So many tokens for each of the source, rounded down, and some on top."""
    return (lengths * ratio + extra).long()


class MinLength(LogitsProcessor):
    """No output ends before it has so many tokens."""

    def __init__(self, lengths: Int[Tensor, "B"], *, eos: int) -> None:
        self.lengths = lengths
        self.eos = eos
        self._max_of_min_lengths = int(lengths.max()) if len(lengths) else 0

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid the end to what is too short."""
        if generated.size(1) >= self._max_of_min_lengths:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[:, self.eos].masked_fill_(
            generated.size(1) < self.lengths[sentence_ids], -torch.inf
        )
        return log_probs

    def validate(self, max_lengths: Sequence[int]) -> None:
        """What is shortest cannot be longer than what is longest."""
        for number, (least, most) in enumerate(
            zip(self.lengths.tolist(), max_lengths, strict=True)
        ):
            if least > most:
                raise ConfigError(
                    f"lengths of sentence {number + 1}",
                    f"its output must have at least {least} tokens and may have {most}",
                    "lower the least length, or raise the longest",
                )


class MaxLength(LogitsProcessor):
    """Every output that has so many tokens ends."""

    is_hard = True

    def __init__(self, lengths: Int[Tensor, "B"], *, eos: int) -> None:
        self.lengths = lengths
        self.eos = eos
        self._min_of_max_lengths = int(lengths.min()) if len(lengths) else 0

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid all but the end to what is long enough."""
        if generated.size(1) < self._min_of_max_lengths:
            return log_probs
        rows = (generated.size(1) >= self.lengths[sentence_ids]).nonzero().flatten()
        if not len(rows):
            return log_probs
        log_probs, ends = log_probs.clone(), log_probs[rows, self.eos]
        if (ends == -torch.inf).any():
            raise no_eos_error(generated.size(1))
        log_probs[rows] = -torch.inf  # a mask over the whole vocabulary takes seven times as long
        log_probs[rows, self.eos] = ends
        return log_probs


def no_eos_error(length: int) -> RunError:
    """Name a model that would go on for ever."""
    return RunError(
        "search",
        f"the model rules out that an output ends after {length} tokens, the most it may have",
        "let outputs be longer, or use another checkpoint",
    )


# Repetition: what of what was said may be said again?


class NoRepeatNGram(LogitsProcessor):
    """No run of `size` tokens is in an output twice (Paulus et al. 2018, section 2.5)."""

    def __init__(self, ngram_size: int) -> None:
        assert ngram_size >= 1, f"runs have at least one token: {ngram_size}"
        self.size = ngram_size

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid what would complete a run that has been said."""
        if generated.size(1) < self.size:
            return log_probs
        ngrams = generated.unfold(1, self.size, 1)  # (R, runs, size)
        prefix = generated[:, generated.size(1) - self.size + 1 :].unsqueeze(1)
        is_same = (ngrams[..., :-1] == prefix).all(dim=-1)
        most = torch.zeros_like(ngrams[..., -1], dtype=log_probs.dtype)
        most = most.masked_fill(~is_same, torch.inf).masked_fill(is_same, -torch.inf)
        return log_probs.scatter_reduce(1, ngrams[..., -1], most, "amin")


class RepetitionPenalty(LogitsProcessor):
    """log p * penalty for every token that has been said (after Keskar et al. 2019, section 4.1).

    The paper divides logits, which raises those below zero; log-probabilities are never above
    zero, so that to multiply them always lowers. What is left no longer sums to one.
    """

    def __init__(self, penalty: float) -> None:
        assert penalty >= 1, f"a penalty lowers: {penalty}"
        self.penalty = penalty

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Lower what has been said."""
        return log_probs.scatter(1, generated, log_probs.gather(1, generated) * self.penalty)
