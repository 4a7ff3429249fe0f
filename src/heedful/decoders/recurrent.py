"""Recurrent decoders: a target written token by token, looking at the source at each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Aligned, Memory, padding
from heedful.attention.alignments import Sharing, join
from heedful.decoders.emission import Emission
from heedful.decoders.wiring import Wired, Wiring, WiringState
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


class Decoded(NamedTuple):
    """A known target as the decoder sees it."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"]
    aligned: Aligned  # all that is known of where each step looked


class RecurrentDecoder(nn.Module):
    """A wiring round recurrent cells, and an emission.

    The first state is tanh(W summary), one for each layer (Bahdanau et al. 2015, section A.2.2).
    """

    def __init__(
        self, embedding: Embedding, bridges: list[nn.Linear], wiring: Wiring, emission: Emission
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridges = nn.ModuleList(bridges)
        self.wiring = wiring
        self.emission = emission

    def start(self, encoded: Encoded) -> DecoderState:
        """Make ready to write about a source."""
        mask = padding(encoded.lengths, encoded.states.size(1))
        hidden = [bridge(encoded.summary).tanh() for bridge in self.bridges]
        memory = self.wiring.attention.remember(encoded.states, mask)
        return DecoderState(self.wiring.begin(hidden, memory), memory)

    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> Step[DecoderState]:
        """Read one token; say how likely each next one is."""
        wired, after = self._read(tokens, self.embedding(tokens), state)
        features = self.wiring.tell(wired.told.unsqueeze(1))
        log_probs = self.emission(features, wired.weights, state.memory).squeeze(1)
        return Step(log_probs, after, wired.weights.squeeze(1))

    def forward(self, tokens: Int[Tensor, "B T"], encoded: Encoded) -> Decoded:
        """Read a known target: the steps of decoding, what no step waits for made at once."""
        state = self.start(encoded)
        told, weights, aligned = [], [], []
        columns = zip(tokens.unbind(dim=1), self.embedding(tokens).unbind(dim=1), strict=True)
        for column, embedded in columns:
            wired, state = self._read(column, embedded, state)
            told.append(wired.told)
            weights.append(wired.weights)
            aligned.append(wired.aligned)
        looked = torch.cat(weights, dim=1)  # (B, T, S)
        features = self.wiring.tell(torch.stack(told, dim=1))  # (B, T, D) or (B, T, S, D)
        return Decoded(self.emission(features, looked, state.memory), looked, join(aligned))

    def _read(
        self, tokens: Int[Tensor, "B"], embedded: Float[Tensor, "B E"], state: DecoderState
    ) -> tuple[Wired, DecoderState]:
        """Take in one token, and first what it tells of where it came from."""
        before = state.wiring
        if state.unsettled is not None:
            features = self.wiring.tell(state.unsettled.told.unsqueeze(1))
            weights = state.unsettled.weights
            settled = self.emission.hindsight(features, weights, tokens.unsqueeze(1))
            before = before._replace(past=before.past._replace(last=settled.squeeze(1)))
        wired = self.wiring(embedded, before, state.memory)
        unsettled = Unsettled(wired.told, wired.weights) if self._asks_for_hindsight else None
        return wired, DecoderState(wired.state, state.memory, unsettled)

    @property
    def _asks_for_hindsight(self) -> bool:
        """Whether tokens tell where they came from, and something makes use of it."""
        attention = self.wiring.attention
        looks_back = attention.score.looks_back or not isinstance(attention.align, Sharing)
        return self.emission.has_hindsight and looks_back
