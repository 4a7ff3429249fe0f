"""Rules: what may be said next?

A rule looks at what hypotheses have said so far and changes the log-probabilities of what they
say next. Laws: a rule only lowers or forbids (-inf); it never makes a NaN; rows do not know of one
another; and several rules together never forbid everything: the end is always left, or else what
is forced. A rule is a function of the tokens said, so a search carries nothing for it but those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.shapes import Float, Int


class Rule(ABC):
    """Something to be kept to in every output."""

    is_binding: ClassVar[bool] = False
    """Whether even what an output must contain gives way to it."""

    @abstractmethod
    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Lower what should not follow on the tokens written so far, begin symbols not counted."""

    def refuse(self, limits: Sequence[int]) -> None:
        """Complain before the search, if outputs of at most these lengths cannot keep to it."""
        return


def apply_all(
    rules: Sequence[Rule],
    log_probs: Float[Tensor, "R N"],
    written: Int[Tensor, "R T"],
    sentences: Int[Tensor, "R"],
    *,
    end: int | None,
) -> tuple[Float[Tensor, "R N"], Float[Tensor, "R N"]]:
    """Apply rules: give what all of them leave, and before that what the binding ones leave.

    Where all together would leave nothing, they leave the end, or what is forced.
    """
    binding = [rule for rule in rules if rule.is_binding]
    others = [rule for rule in rules if not rule.is_binding]
    bound = _apply(binding, log_probs, written, sentences, end)
    return _apply(others, bound, written, sentences, end), bound


def _apply(
    rules: Sequence[Rule],
    log_probs: Float[Tensor, "R N"],
    written: Int[Tensor, "R T"],
    sentences: Int[Tensor, "R"],
    end: int | None,
) -> Float[Tensor, "R N"]:
    left = log_probs
    for rule in rules:
        left = rule.apply(left, written, sentences)
    if left is log_probs:
        return left
    has_nothing = (left.amax(dim=-1) == -torch.inf).nonzero().flatten()
    if len(has_nothing):
        left = left.index_copy(0, has_nothing, _last_resort(log_probs[has_nothing], end))
    return left


def _last_resort(log_probs: Float[Tensor, "R N"], end: int | None) -> Float[Tensor, "R N"]:
    """The end; but all there is where there is no end, or where it could not follow anyway."""
    if end is None:
        return log_probs
    others = torch.arange(log_probs.size(1), device=log_probs.device) != end
    can_end = log_probs[:, end, None] > -torch.inf
    return log_probs.masked_fill(others & can_end, -torch.inf)


class NeverSay(Rule):
    """Tokens that no output contains."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid them."""
        if not self.tokens:
            return log_probs
        ids = torch.tensor(self.tokens, device=log_probs.device)
        return log_probs.index_fill(1, ids, -torch.inf)


class NeverPhrases(Rule):
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
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid what would complete one."""
        log_probs = log_probs.clone() if self.phrases else log_probs
        for *opening, last in self.phrases:
            if len(opening) > written.size(1):
                continue
            said = written[:, written.size(1) - len(opening) :]
            would_complete = (said == torch.tensor(opening, device=said.device)).all(dim=1)
            log_probs[:, last].masked_fill_(would_complete, -torch.inf)
        return log_probs


class BeginWith(Rule):
    """Tokens that each output begins with; sentences may have unlike ones, or none."""

    is_binding = True

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.prefixes = [list(prefix) for prefix in prefixes]

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Leave only the next token of each prefix; what is past its prefix is free."""
        depth = written.size(1)
        due = [prefix[depth] if depth < len(prefix) else -1 for prefix in self.prefixes]
        if max(due, default=-1) < 0:
            return log_probs
        wanted = torch.tensor(due, device=sentences.device)[sentences].unsqueeze(1)  # (R, 1)
        others = torch.arange(log_probs.size(1), device=log_probs.device) != wanted
        return log_probs.masked_fill(others & (wanted >= 0), -torch.inf)

    def refuse(self, limits: Sequence[int]) -> None:
        """A prefix must fit."""
        for number, (prefix, limit) in enumerate(zip(self.prefixes, limits, strict=True)):
            if len(prefix) > limit:
                raise ConfigError(
                    f"prefix of sentence {number + 1}",
                    f"it has {len(prefix)} tokens, but the output may have {limit}",
                    "give a shorter prefix, or let outputs be longer",
                )


class PerSentence(Rule):
    """A rule of its own for each sentence, or none."""

    def __init__(self, rules: Sequence[Rule | None]) -> None:
        bound = [rule for rule in rules if rule is not None and rule.is_binding]
        assert not bound, f"{type(bound[0]).__name__} knows sentences apart by itself"
        self.rules = list(rules)

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Let each rule see the rows of its sentence alone."""
        log_probs = log_probs.clone()
        for number in sentences.unique().tolist():
            if (rule := self.rules[number]) is not None:
                rows = (sentences == number).nonzero().flatten()
                log_probs[rows] = rule.apply(log_probs[rows], written[rows], sentences[rows])
        return log_probs
