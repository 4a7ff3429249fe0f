"""Models: what can be trained on pairs and asked for targets."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from heedful.data.collate import Batch
from heedful.decoders.own_tokens import Own
from heedful.shapes import Float
from heedful.tasks.decodable import Decodable


class Transduced(NamedTuple):
    """Known targets as the model sees them, and what is wrong with how it came to that."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"] | None  # where it looked; None if not needed
    penalties: dict[str, Float[Tensor, ""]]  # by name; sums over the real targets


class Model(nn.Module, Decodable):
    """A model of targets, given sources."""

    @abstractmethod
    def forward(
        self,
        batch: Batch,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Transduced:
        """Say how likely each token of known targets is.

        Of the tokens before it each is the known one with probability `teacher_share`, and
        otherwise the model's own. Whoever does not need to know where was looked may not be told.
        """
