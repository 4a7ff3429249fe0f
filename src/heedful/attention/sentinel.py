"""Attention with a sentinel: a vector of the decoder that competes with the source positions.

The memory of a step has one more key and value than the source, the sentinel, at its end.
Invariant: the weights of the source positions and the gate, which is the weight of the sentinel,
sum to one; outside this module the source keeps its number of positions.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from heedful.attention.additive_scores import LocationScore
from heedful.attention.alignments import AlignmentLossInputs, AlignmentOutput, SoftAlignment
from heedful.attention.attention import Attention, AttentionOutput, AttentionWrapper
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.scores import ScoreFunction
from heedful.errors import check
from heedful.pytree import map_pairs
from heedful.shapes import Float, Losses, Queries, Weights


class SentinelAttention(AttentionWrapper):
    """beta s + (1 - beta) c, with [(1 - beta) a; beta] = softmax([scores of the source; of s]).

    (Lu et al. 2017, section 2.3, with any score and number of heads.) s is the sentinel, c the
    context without it and a its weights; `AlignmentOutput.gates` is beta.
    """

    @override
    def _project_memory(self, values: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner._project_memory(values, keys)

    def append_sentinel(
        self, memory: Memory, value: Float[Tensor, "*B V"], key: Float[Tensor, "*B V"]
    ) -> Memory:
        """Return the memory of one step: the source, then the sentinel."""
        sentinel = self.build_memory(value.unsqueeze(-2), keys=key.unsqueeze(-2))
        is_visible = torch.ones_like(memory.mask[..., :1])
        return Memory(
            torch.cat([memory.values, sentinel.values], dim=-2),
            map_pairs(_concat_positions, memory.keys, sentinel.keys),
            torch.cat([memory.mask, is_visible], dim=-1),
        )

    @override
    def initial_state(self, memory: Memory) -> AttentionState:
        """Return the state before the first query, of a memory without sentinel."""
        return self.inner.initial_state(memory)

    @override
    def forward(
        self,
        queries: Queries,
        memory: Memory,
        state: AttentionState | None = None,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Attend to a memory with a sentinel; the output has the weights of the source."""
        output = self.inner(queries, memory, self._inner_state(state))
        alignment = _split_gates(output.alignment)
        if state is not None:  # nothing depends on it, but a trace tells steps apart by it
            state = state._replace(
                num_queries=state.num_queries + alignment.weights.size(-2),
                last_weights=alignment.weights[..., -1, :],
                coverage=state.coverage + alignment.weights.sum(dim=-2),
            )
        return AttentionOutput(output.context, output.weights[..., :-1], alignment, state)

    def _inner_state(self, state: AttentionState | None) -> AttentionState | None:
        """Return the state with a position for the sentinel, where an edit depends on it."""
        if state is None or not self.inner.is_stateful:
            return None
        per_position = state.last_weights, state.coverage
        last_weights, coverage = (pad(weights, (0, 1)) for weights in per_position)
        return state._replace(last_weights=last_weights, coverage=coverage)

    @override
    def compute_weights(
        self, queries: Queries, memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        return _split_gates(self.inner.compute_weights(queries, memory, self._inner_state(state)))

    @override
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        return self.inner.compute_auxiliary_losses(loss_inputs)


def _concat_positions(
    keys: Float[Tensor, "*B S A"], sentinel: Float[Tensor, "*B 1 A"]
) -> Float[Tensor, "*B N A"]:
    return torch.cat([keys, sentinel], dim=-2)


def _split_gates(alignment: AlignmentOutput) -> AlignmentOutput:
    weights: Weights = alignment.weights
    return AlignmentOutput(weights[..., :-1], gates=weights[..., -1])


def check_sentinel(attention: Attention, location: str) -> None:
    """Raise ConfigError for attention in which the sentinel would need a position."""
    scores = [module for module in attention.modules() if isinstance(module, ScoreFunction)]
    is_positional = any(
        score.needs_positions or score.uses_history or isinstance(score, LocationScore)
        for score in scores
    )
    message = "a sentinel has no position, but this score depends on positions or earlier weights"
    hint = "choose a score of contents, such as 'additive' without features, or 'scaled-dot'"
    check(not is_positional, f"{location}.score.type", message, hint)
    message = "a sentinel needs an alignment in which positions do not matter"
    is_soft, hint = isinstance(attention.alignment_function, SoftAlignment), "choose 'softmax'"
    check(is_soft, f"{location}.alignment.type", message, hint)
    message = "a sentinel needs a readout with one context per query"
    is_valid, hint = not attention.readout.is_per_position, "choose 'weighted-sum'"
    check(is_valid, f"{location}.readout.type", message, hint)
