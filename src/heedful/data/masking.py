"""Masking: which tokens of a text are hidden, for a model to find them out?

Some tokens are chosen. Most of these are hidden behind a mask symbol; some become another token
and some stay, so that the model cannot tell which of the tokens it sees are right (Devlin et al.
2019, section 3.1). Only the chosen ones are asked for. What is drawn follows from a seed alone.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import torch
from pydantic import Field, model_validator
from torch import Tensor

from heedful.config import Choice
from heedful.data.running import TextBatch
from heedful.shapes import Bool, Int
from heedful.text.vocabulary import NUM_SPECIALS, PAD

Share = Annotated[float, Field(ge=0, le=1)]


class MaskingConfig(Choice):
    """Which tokens are chosen, and what becomes of them (Devlin et al. 2019)."""

    chosen: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Share of all tokens that the model is asked for."""
    hidden: Share = 0.8
    """Share of these that the mask symbol stands for."""
    replaced: Share = 0.1
    """Share of these that another token, any of the vocabulary, stands for; the rest stay."""

    @model_validator(mode="after")
    def _is_a_share(self) -> MaskingConfig:
        if self.hidden + self.replaced > 1:
            raise ValueError("hidden and replaced together must not be more than 1")
        return self


def hide(
    tokens: Int[Tensor, "B T"], config: MaskingConfig, *, vocabulary_size: int, seed: str
) -> TextBatch:
    """Choose tokens and hide them; the mask symbol is the id after the last of the vocabulary."""
    chance = torch.Generator().manual_seed(Random(seed).getrandbits(63))
    chosen = _choose(torch.rand(tokens.shape, generator=chance), tokens != PAD, config.chosen)
    fate = torch.rand(tokens.shape, generator=chance)
    others = torch.randint(NUM_SPECIALS, vocabulary_size, tokens.shape, generator=chance)
    shown = torch.where(fate < config.hidden + config.replaced, others, tokens)
    shown = shown.masked_fill(fate < config.hidden, vocabulary_size)
    return TextBatch(torch.where(chosen, shown, tokens), tokens.masked_fill(~chosen, PAD))


def _choose(draws: Tensor, real: Bool[Tensor, "B T"], share: float) -> Bool[Tensor, "B T"]:
    """Choose each real token with this probability, and the first by lot in any case."""
    # Of no targets there would be no mean.
    draws = draws.masked_fill(~real, 2.0)
    return (draws < share) | (draws == draws.min())
