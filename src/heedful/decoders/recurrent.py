"""Recurrent decoders: a target written token by token, looking at the source at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Aligned, Memory
from heedful.attention.alignments import join
from heedful.decoders.bridges import Bridge
from heedful.decoders.emission import Emission
from heedful.decoders.wiring import Wired, Wiring, WiringState
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.search.protocol import Step
from heedful.shapes import Float, Int

Own = Literal["drawn", "likeliest"]


class Unsettled(NamedTuple):
    """A token that is yet to be chosen: what it is told from, and where it may come from."""

    told: Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    weights: Float[Tensor, "B 1 S"]


class DecoderState(NamedTuple):
    """All that is needed to go on writing: what is carried, and what can be looked at."""

    wiring: WiringState
    memory: Memory
    unsettled: Unsettled | None = None  # kept where its hindsight will be asked for


class Decoded(NamedTuple):
    """A known target as the decoder sees it."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"]  # zeros where nothing looks
    aligned: Aligned | None  # all that is known of where each step looked, where any does


class RecurrentDecoder(nn.Module):
    """A bridge from the encoder, a wiring round recurrent cells, and an emission."""

    def __init__(
        self, embedding: Embedding, bridge: Bridge, wiring: Wiring, emission: Emission
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.wiring = wiring
        self.emission = emission

    def start(self, encoded: Encoded) -> DecoderState:
        """Make ready to write about a source."""
        memory = self.wiring.remember(encoded)
        return DecoderState(self.wiring.begin(self.bridge(encoded), memory, encoded), memory)

    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> Step[DecoderState]:
        """Read one token; say how likely each next one is."""
        wired, after = self._read(tokens, self.embedding(tokens), state)
        return Step(self._say(wired, state.memory), after, wired.weights.squeeze(1))

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoded: Encoded,
        teacher_share: float = 1.0,
        own: Own = "drawn",
    ) -> Decoded:
        """Read a known target: the steps of decoding, what no step waits for made at once.

        With a teacher's share below one, each token after the first is known with that
        probability only. Otherwise it is the decoder's own, drawn as it finds tokens likely, or
        the likeliest (Bengio et al. 2015, scheduled sampling); no gradient passes through it.
        """
        if teacher_share < 1:
            return self._read_own(tokens, encoded, teacher_share, own)
        state, steps = self.start(encoded), []
        columns = zip(tokens.unbind(dim=1), self.embedding(tokens).unbind(dim=1), strict=True)
        for column, embedded in columns:
            wired, state = self._read(column, embedded, state)
            steps.append(wired)
        weights, aligned = _looked(steps)
        told = torch.stack([wired.told for wired in steps], dim=1)
        features = self.wiring.tell(told)  # (B, T, D) or (B, T, S, D)
        return Decoded(self.emission(features, weights, state.memory), weights, aligned)

    def _read_own(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, teacher_share: float, own: Own
    ) -> Decoded:
        state, steps, said = self.start(encoded), list[Wired](), list[Tensor]()
        for known in tokens.unbind(dim=1):
            taken = mix(known, choose(said[-1].detach(), own), teacher_share) if said else known
            wired, state = self._read(taken, self.embedding(taken), state)
            steps.append(wired)
            said.append(self._say(wired, state.memory))
        return Decoded(torch.stack(said, dim=1), *_looked(steps))

    def _say(self, wired: Wired, memory: Memory) -> Float[Tensor, "B N"]:
        features = self.wiring.tell(wired.told.unsqueeze(1))
        return self.emission(features, wired.weights, memory).squeeze(1)

    def _read(
        self, tokens: Int[Tensor, "B"], embedded: Float[Tensor, "B E"], state: DecoderState
    ) -> tuple[Wired, DecoderState]:
        """Take in one token, and first what it tells of where it came from."""
        before = state.wiring
        if state.unsettled is not None:
            assert before.past is not None
            features = self.wiring.tell(state.unsettled.told.unsqueeze(1))
            weights = state.unsettled.weights
            settled = self.emission.hindsight(features, weights, tokens.unsqueeze(1))
            before = before._replace(past=before.past._replace(last=settled.squeeze(1)))
        wired = self.wiring(embedded, before, state.memory)
        asks_for_hindsight = self.emission.has_hindsight and self.wiring.looks_back
        unsettled = Unsettled(wired.told, wired.weights) if asks_for_hindsight else None
        return wired, DecoderState(wired.state, state.memory, unsettled)


def _looked(steps: Sequence[Wired]) -> tuple[Float[Tensor, "B T S"], Aligned | None]:
    """Put together where each step looked, and what is known of it."""
    known = [wired.aligned for wired in steps if wired.aligned is not None]
    weights = torch.cat([wired.weights for wired in steps], dim=1)
    return weights, join(known) if known else None


def mix(known: Int[Tensor, "B"], own: Int[Tensor, "B"], teacher_share: float) -> Int[Tensor, "B"]:
    """Take each known token with this probability, and the decoder's own otherwise."""
    is_known = torch.rand(known.shape, device=known.device) < teacher_share
    return torch.where(is_known, known, own)


def choose(log_probs: Float[Tensor, "B N"], own: Own) -> Int[Tensor, "B"]:
    """Choose the tokens that the decoder itself would say."""
    if own == "likeliest":
        return log_probs.argmax(dim=-1)
    # A race of exponential clocks, not torch.multinomial, which ends a process on a GPU when it
    # meets NaN: the loss is to show it, with the step it came from.
    return (log_probs - torch.empty_like(log_probs).exponential_().log()).argmax(dim=-1)
