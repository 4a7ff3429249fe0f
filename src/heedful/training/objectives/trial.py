"""Trials: what does a model say of a batch by itself, how likely, and how good is it?

Each source has its reference and, beside it, what was drawn; equal outputs stand once, and are
counted. Law: a trial is one reading of the batch with gradients, whatever number is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from heedful.data.collate import Batch
from heedful.search.sampling import Sampling
from heedful.shapes import Float
from heedful.tasks.model import Model
from heedful.training.objectives.outputs import Limits, Output, Told, draw, references, tell
from heedful.training.objectives.rewards import Reward


class Tried(NamedTuple):
    """The outputs of each source, its reference first; nothing where a source has fewer."""

    told: Told
    counts: Float[Tensor, "B K"]  # how often each was drawn; the reference perhaps never
    rewards: Float[Tensor, "B K"]


class Trial:
    """Draws outputs of a model and rewards them."""

    def __init__(self, reward: Reward, limits: Limits, *, num_samples: int) -> None:
        self.reward = reward
        self.limits = limits
        self.num_samples = num_samples

    def __call__(self, model: nn.Module, batch: Batch, bare: nn.Module) -> Tried:
        """Draw outputs of the bare model, and tell by the other how likely they are."""
        assert isinstance(bare, Model), f"{type(bare).__name__} reads no sources"
        wanted = references(batch)
        drawn = draw(bare, batch, self.limits(batch), count=self.num_samples)
        counted = [_counted(*each) for each in zip(wanted, drawn, strict=True)]
        told = tell(model, batch, [list(each) for each in counted])
        like = told.log_likelihoods
        counts = _table([list(each.values()) for each in counted], like)
        return Tried(told, counts, self._rewards(wanted, counted, like))

    def reward_likeliest(self, batch: Batch, bare: nn.Module, like: Tried) -> Float[Tensor, "B 1"]:
        """Reward what the model says when it takes the likeliest token, every time."""
        assert isinstance(bare, Model), f"{type(bare).__name__} reads no sources"
        greedy = Sampling(temperature=0)
        said = draw(bare, batch, self.limits(batch), count=1, how=greedy)
        return self._rewards(references(batch), said, like.rewards)

    def _rewards(
        self,
        wanted: Sequence[Output],
        said: Sequence[Iterable[Output]],
        like: Float[Tensor, "B _"],
    ) -> Float[Tensor, "B K"]:
        rewards = [
            [self.reward(output.tokens, reference.tokens) for output in outputs]
            for reference, outputs in zip(wanted, said, strict=True)
        ]
        return _table(rewards, like)


def _counted(reference: Output, drawn: Sequence[Output]) -> Counter[Output]:
    """Count how often each output was drawn, the reference first."""
    counts = Counter({reference: 0})
    counts.update(drawn)
    return counts


def _table(rows: Sequence[Sequence[float]], like: Float[Tensor, "B _"]) -> Float[Tensor, "B K"]:
    """Put rows of unlike lengths into a table, as precise and on the same device; else zero."""
    tensors = [torch.tensor(row, dtype=like.dtype) for row in rows]
    return pad_sequence(tensors, batch_first=True).to(like.device)
