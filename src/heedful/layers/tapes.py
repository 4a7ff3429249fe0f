"""Tapes: how does a cell look back at its own past?

A tape has a place for every step so far. A place is written when its step ends and stays as it
is; its key is prepared then and never again, so that the work of a step grows with the length of
the tape and not with its square. Law: what is not `seen` has no influence.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Attention, Expectation, Memory, Score, Softmax
from heedful.shapes import Bool, Float


class Tape(NamedTuple):
    """What a cell has written so far: parts of a state, which every step makes one place longer."""

    values: Float[Tensor, "B S V"]
    keys: Float[Tensor, "B S A"]  # already passed through Score.prepare
    seen: Bool[Tensor, "B S 1"]  # False where a row had ended, and others of its batch had not

    @property
    def memory(self) -> Memory:
        """The tape as something to attend to."""
        return Memory(self.values, self.keys, self.seen.mT)


class OwnPast(nn.Module):
    """Attention of a cell to what it has written itself.

    The hidden state that was recalled last asks; where `input_asks`, the input does so with it.
    Every step asks of another tape, so none has a past: the score may not look back.
    """

    def __init__(self, score: Score, *, hidden_size: int, input_asks: bool) -> None:
        super().__init__()
        assert not score.looks_back, "where earlier steps looked is not known"
        self.attention = Attention(score, Softmax(), Expectation(), kind="own past")
        self.hidden_size = hidden_size
        self.input_asks = input_asks

    def begin(self, context: Float[Tensor, "B V"]) -> Tape:
        """An empty tape for values as wide as this context."""
        empty = context.new_zeros(len(context), 0, context.size(-1))
        keys = self.attention.score.prepare(empty[..., : self.hidden_size])
        return Tape(empty, keys, empty[..., :1].bool())

    def forward(
        self, inputs: Float[Tensor, "B E"], context: Float[Tensor, "B V"], tape: Tape
    ) -> Float[Tensor, "B V"]:
        """Take a context from the tape.

        `context` is the last one. It stays where nothing is written yet, so that the first step
        reads what its state was begun with.
        """
        if tape.values.size(1) == 0:
            return context
        recalled = context[:, : self.hidden_size]
        query = torch.cat([inputs, recalled], dim=-1) if self.input_asks else recalled
        attended = self.attention(query.unsqueeze(1), tape.memory, need_weights=False)
        return attended.context.squeeze(1)

    def write(self, tape: Tape, values: Float[Tensor, "B V"]) -> Tape:
        """Write one more place: a hidden state, and behind it what is taken along with it."""
        new = values.unsqueeze(1)
        keys = self.attention.score.prepare(new[..., : self.hidden_size])
        place = Tape(new, keys, torch.ones_like(new[..., :1], dtype=torch.bool))
        return Tape(*(torch.cat(pair, dim=1) for pair in zip(tape, place, strict=True)))
