"""Decoders: what writes a target, token by token, about a source that has been read.

Law: a known target read at once is the same target read step by step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.attention.alignments import Aligned, Looked
from heedful.attention.attend import Attends
from heedful.decoders.emission import Emission
from heedful.decoders.own_tokens import Own, step_by_step
from heedful.errors import ConfigError
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import NO_PENALTIES, Encoded, add_up
from heedful.search.protocol import Step
from heedful.shapes import Bool, Float, Int


class Look(NamedTuple):
    """Who looked at the source, and all that is known of where."""

    attention: Attends
    aligned: Aligned


class Decoded(NamedTuple):
    """A known target as the decoder sees it."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"] | None  # zeros where nothing looks; None if not needed
    looks: Sequence[Look] = ()  # at least those that something is added to the loss for
    penalties: Mapping[str, Float[Tensor, ""]] = NO_PENALTIES  # what else is added, by name


class Decoder(nn.Module, ABC):
    """What writes a target."""

    embedding: Embedding
    emission: Emission

    @property
    def wants_memories(self) -> bool:
        """Whether it begins with what the encoder's memory cells hold at the ends."""
        return False

    @abstractmethod
    def start(self, encoded: Encoded) -> Any:
        """Make ready to write about a source."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> Step[Any]:
        """Read one token; say how likely each next one is."""

    @abstractmethod
    def read(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, *, need_weights: bool = True
    ) -> Decoded:
        """Read a known target: the steps of decoding, what no step waits for made at once."""

    def read_own(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, teacher_share: float, own: Own
    ) -> Decoded:
        """Read a target of which some tokens are the decoder's own, step by step.

        Nothing is known of its looks but the weights: a decoder whose attention is penalised must
        read otherwise.
        """
        self._refuse_penalties()
        return Decoded(*step_by_step(self, tokens, self.start(encoded), teacher_share, own))

    def _refuse_penalties(self) -> None:
        """Complain where something is added to the loss for where attention goes."""
        penalised = [each for each in self.modules() if isinstance(each, Attends)]
        if any(each.is_penalised for each in penalised):
            raise ConfigError(
                "training.sampling",
                "this decoder's attention learns by a penalty, which is lost where a decoder reads "
                "tokens of its own",
                "set training.sampling.kind to 'teacher-forcing', or choose an alignment such as "
                "'softmax' and no penalties",
            )

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoded: Encoded,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Decoded:
        """Read a target; with a teacher's share below one, not all of it is known."""
        if teacher_share < 1:
            return self.read_own(tokens, encoded, teacher_share, own)
        return self.read(tokens, encoded, need_weights=need_weights)


def penalise(
    looks: Sequence[Look],
    log_likelihoods: Float[Tensor, "B T"],
    real: Bool[Tensor, "B T"],
    visible: Bool[Tensor, "B S"],
) -> dict[str, Float[Tensor, ""]]:
    """Say, by name, what is added to the loss for where a decoder looked."""
    found = [
        attention.penalise(Looked(aligned, log_likelihoods, real, visible))
        for attention, aligned in looks
    ]
    return add_up(*found)
