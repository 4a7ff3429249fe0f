"""Ensembles: what do several models say together?

The members may be as unlike as they please, as long as they share their vocabularies: each goes on
by its own state, and only what they say of the next token is put together, and where they look.
Laws: an ensemble of one is that member; the order of members does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.data.collate import Sources
from heedful.errors import ConfigError
from heedful.search import Step
from heedful.shapes import Float, Int
from heedful.tasks.decodable import Decodable

Average = Literal["log-probabilities", "probabilities"]


class Ensemble(Decodable):
    """The average of what its members say.

    Of `log-probabilities`: log p = mean_k log p_k - log Z, where Z makes it sum to one; a token
    that one member rules out is ruled out. Of `probabilities`: log p = log mean_k p_k; one member
    that finds a token likely is enough. Where the ensemble looks is the mean over those members
    that look anywhere.
    """

    def __init__(self, members: Sequence[Decodable], average: Average) -> None:
        assert members, "an ensemble has members"
        self.members = tuple(members)
        self.average = average

    def start(self, sources: Sources) -> tuple[Any, ...]:
        """Let every member read the sources."""
        return tuple(member.start(sources) for member in self.members)

    def step(self, tokens: Int[Tensor, "B"], state: tuple[Any, ...]) -> Step[tuple[Any, ...]]:
        """Let every member read one token; average what they say is next."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state, strict=True)]
        said = _together([step.log_probs for step in steps])
        return Step(
            average_log_probs(said, self.average),
            tuple(step.state for step in steps),
            average_weights([step.weights for step in steps]),
        )


def average_log_probs(said: Float[Tensor, "members B N"], average: Average) -> Float[Tensor, "B N"]:
    """Average what members say, by logarithms or as probabilities."""
    if average == "probabilities":
        return said.logsumexp(dim=0) - math.log(len(said))
    return said.mean(dim=0).log_softmax(dim=-1)


def average_weights(looked: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "B S"]:
    """Average where members look, row by row over those that look; nowhere, if none does.

    Members may see sources of unlike widths: what is past the end of one is hidden from it.
    """
    width = max(weights.size(1) for weights in looked)
    seen = torch.stack([pad(_precise(weights), (0, width - weights.size(1))) for weights in looked])
    num_looking = (seen.sum(dim=-1, keepdim=True) > 0).sum(dim=0).clamp(min=1)  # (B, 1)
    return seen.sum(dim=0) / num_looking


def _together(said: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "members B N"]:
    sizes = sorted({each.size(1) for each in said})
    if len(sizes) > 1:
        raise ConfigError(
            "ensemble",
            f"its members know unlike numbers of tokens: {', '.join(map(str, sizes))}",
            "put together models that were trained with the same vocabularies",
        )
    return torch.stack([_precise(each) for each in said])


def _precise(numbers: Float[Tensor, "B _"]) -> Float[Tensor, "B _"]:
    """Members may compute in half precision, each in another; they meet in single at least."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))
