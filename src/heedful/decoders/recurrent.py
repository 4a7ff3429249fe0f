"""Recurrent decoders: a target written token by token, looking at the source at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.attention import Memory
from heedful.attention.alignments import join
from heedful.decoders.bridges import Bridge
from heedful.decoders.decoder import Decoded, Decoder, Look
from heedful.decoders.emission import Emission
from heedful.decoders.own_tokens import Own, next_token
from heedful.decoders.wiring import Attending, Wired, Wiring, WiringState
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.search.protocol import Step
from heedful.shapes import Float, Int


class Unsettled(NamedTuple):
    """A token that is yet to be chosen: what it is told from, and where it may come from."""

    told: Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    weights: Float[Tensor, "B 1 S"]


class DecoderState(NamedTuple):
    """All that is needed to go on writing: what is carried, and what can be looked at."""

    wiring: WiringState
    memory: Memory
    unsettled: Unsettled | None = None  # kept where its hindsight will be asked for


class RecurrentDecoder(Decoder):
    """A bridge from the encoder, a wiring round recurrent cells, and an emission."""

    def __init__(
        self, embedding: Embedding, bridge: Bridge, wiring: Wiring, emission: Emission
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.wiring = wiring
        self.emission = emission

    @property
    def wants_memories(self) -> bool:
        """Whether the bridge takes memory cells over, and the cells have room for them."""
        return self.bridge.takes_memories and self.wiring.cells.has_memories

    def start(self, encoded: Encoded) -> DecoderState:
        """Make ready to write about a source."""
        memory = self.wiring.remember(encoded)
        first = self.wiring.cells.begin(self.bridge(encoded), self.bridge.memories(encoded))
        return DecoderState(self.wiring.begin(first, memory, encoded), memory)

    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> Step[DecoderState]:
        """Read one token; say how likely each next one is."""
        wired, after = self._read(tokens, self.embedding(tokens), state)
        return Step(self._say(wired, state.memory), after, wired.weights.squeeze(1))

    def read(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, *, need_weights: bool = True
    ) -> Decoded:
        """Read a known target: the steps of decoding, what no step waits for made at once."""
        state, steps = self.start(encoded), []
        columns = zip(tokens.unbind(dim=1), self.embedding(tokens).unbind(dim=1), strict=True)
        for column, embedded in columns:
            wired, state = self._read(column, embedded, state)
            steps.append(wired)
        weights, looks = self._looked(steps)
        told = torch.stack([wired.told for wired in steps], dim=1)
        features = self.wiring.tell(told)  # (B, T, D) or (B, T, S, D)
        return Decoded(self.emission(features, weights, state.memory), weights, looks)

    def read_own(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, teacher_share: float, own: Own
    ) -> Decoded:
        """Read a target of which some tokens are the decoder's own, step by step."""
        state, steps, said = self.start(encoded), list[Wired](), list[Tensor]()
        for known in tokens.unbind(dim=1):
            taken = next_token(known, said[-1] if said else None, teacher_share, own)
            wired, state = self._read(taken, self.embedding(taken), state)
            steps.append(wired)
            said.append(self._say(wired, state.memory))
        return Decoded(torch.stack(said, dim=1), *self._looked(steps))

    def _looked(self, steps: Sequence[Wired]) -> tuple[Float[Tensor, "B T S"], Sequence[Look]]:
        """Put together where each step looked, and what is known of it."""
        weights = torch.cat([wired.weights for wired in steps], dim=1)
        if not isinstance(self.wiring, Attending):
            return weights, ()
        known = [wired.aligned for wired in steps if wired.aligned is not None]
        return weights, (Look(self.wiring.attention, join(known)),)

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
