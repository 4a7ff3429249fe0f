"""Recurrent decoders: a target written token by token, looking at the source at each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Aligned, Memory, padding
from heedful.attention.alignments import join
from heedful.decoders.emission import Emission
from heedful.decoders.wiring import Wiring, WiringState
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.search.protocol import Step
from heedful.shapes import Float, Int


class DecoderState(NamedTuple):
    """All that is needed to go on writing: what is carried, and what can be looked at."""

    wiring: WiringState
    memory: Memory


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
        wired = self.wiring(self.embedding(tokens), state.wiring, state.memory)
        features = self.wiring.tell(wired.told.unsqueeze(1))
        log_probs = self.emission(features, wired.weights, state.memory).squeeze(1)
        return Step(log_probs, DecoderState(wired.state, state.memory), wired.weights.squeeze(1))

    def forward(self, tokens: Int[Tensor, "B T"], encoded: Encoded) -> Decoded:
        """Read a known target: the steps of decoding, what no step waits for made at once."""
        state, memory = self.start(encoded)
        told, weights, aligned = [], [], []
        for embedded in self.embedding(tokens).unbind(dim=1):
            wired = self.wiring(embedded, state, memory)
            state = wired.state
            told.append(wired.told)
            weights.append(wired.weights)
            aligned.append(wired.aligned)
        looked = torch.cat(weights, dim=1)  # (B, T, S)
        features = self.wiring.tell(torch.stack(told, dim=1))  # (B, T, D) or (B, T, S, D)
        return Decoded(self.emission(features, looked, memory), looked, join(aligned))
