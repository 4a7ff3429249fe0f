"""Attention: a score, an alignment and a readout applied to a memory.

`Memory` is prepared once per source and passed in; `AttentionOutput` carries the `AttentionState`
for the next queries. Modules keep nothing between calls. Invariant: queries in one call give the
same results as queries one at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from heedful.attention.alignments import (
    AlignmentFunction,
    SoftAlignment,
    SoftmaxAlignment,
    mask_scores,
)
from heedful.attention.auxiliary_losses import AttentionLoss
from heedful.attention.dot_product_scores import DOT_PRODUCT_SCORES
from heedful.attention.outputs import (
    AlignmentLossInputs,
    AlignmentOutput,
    AttentionOutput,
    AttentionState,
    Memory,
    PreparedKeys,
    concat_alignments,
)
from heedful.attention.readouts import Readout, WeightedSumReadout
from heedful.attention.scores import ScoreFunction
from heedful.errors import DataError, check
from heedful.ops import op
from heedful.shapes import Context, Int, Keys, Losses, Mask, Queries, Values

AttentionRole = Literal["cross", "self", "intra", "image"]


class Attention(nn.Module, ABC):
    """Interface of attention with one head or several."""

    role: AttentionRole
    """What the memory is, relative to the queries; used in traces."""

    if TYPE_CHECKING:
        # Submodules in one subclass, properties in the other. At run time a property of the base
        # class would hide a submodule of the same name.

        @property
        def score(self) -> ScoreFunction:
            """The score function."""

        @property
        def alignment_function(self) -> AlignmentFunction:
            """The alignment."""

        @property
        def readout(self) -> Readout:
            """The readout."""

    @property
    def is_stateful(self) -> bool:
        """Whether the weights of a query depend on earlier queries."""
        return self.score.uses_history or not isinstance(self.alignment_function, SoftAlignment)

    @property
    def needs_positions(self) -> bool:
        """Whether the weights of a query depend on its position."""
        return self.is_stateful or self.score.needs_positions

    @property
    @abstractmethod
    def has_auxiliary_losses(self) -> bool:
        """Whether `compute_auxiliary_losses` may return any loss."""

    @abstractmethod
    def build_memory(
        self,
        values: Values,
        mask: Mask,
        *,
        keys: Values | None = None,
        start_positions: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Prepare a source for attention.

        `keys` default to the values. If the source continues another one, `start_positions` is the
        position of the first key of each row.
        """

    @abstractmethod
    def initial_state(self, memory: Memory) -> AttentionState:
        """Return the state before the first query."""

    @abstractmethod
    def forward(
        self,
        queries: Queries,
        memory: Memory,
        state: AttentionState | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Attend to `memory` with every query; `state=None` means that these are the first queries.

        Without a state and with `need_weights=False`, `weights` and `alignment` may be None.
        """

    @abstractmethod
    def compute_weights(
        self, queries: Queries, memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        """Return the alignment of each query without computing a context."""

    @abstractmethod
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        """Return the losses on the alignment by name, summed over the targets of the batch."""


class SingleHeadAttention(Attention):
    """readout(alignment(score(queries, keys)), values)."""

    score: ScoreFunction
    alignment_function: AlignmentFunction
    readout: Readout

    def __init__(
        self,
        score: ScoreFunction,
        alignment_function: AlignmentFunction,
        readout: Readout,
        *,
        auxiliary_losses: Sequence[AttentionLoss] = (),
        role: AttentionRole = "cross",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.score = score
        self.alignment_function = alignment_function
        self.readout = readout
        self.auxiliary_losses = nn.ModuleList(auxiliary_losses)
        self.role = role
        self.dropout = nn.Dropout(dropout)

    @property
    @override
    def has_auxiliary_losses(self) -> bool:
        alignment_has_losses = (
            type(self.alignment_function).compute_auxiliary_losses
            is not AlignmentFunction.compute_auxiliary_losses
        )
        return alignment_has_losses or len(self.auxiliary_losses) > 0

    @override
    def build_memory(
        self,
        values: Values,
        mask: Mask,
        *,
        keys: Values | None = None,
        start_positions: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        check_nonempty_source(values)
        prepared = self.prepare_keys(values if keys is None else keys, start_positions)
        return Memory(values, prepared, mask.expand(*values.shape[:-2], -1, -1))

    def prepare_keys(
        self, keys: Keys, start_positions: Int[Tensor, "_"] | None = None
    ) -> PreparedKeys:
        """Prepare keys for the score; their positions begin at `start_positions`, or at 0."""
        if start_positions is None:
            return self.score.prepare_keys(keys)
        return self.score.prepare_keys_at(start_positions, keys)

    @override
    def initial_state(self, memory: Memory) -> AttentionState:
        values = memory.values
        zero_weights = values.new_zeros(values.shape[:-1])  # (*B, S)
        zero_context = torch.zeros_like(values[..., 0, :])  # (*B, V)
        sample = torch.rand if self.training else torch.ones
        uniform_sample = sample(zero_weights.shape[:-1], device=values.device)  # (*B,)
        num_queries = torch.zeros_like(uniform_sample, dtype=torch.long)
        return AttentionState(num_queries, zero_weights, zero_weights, zero_context, uniform_sample)

    @override
    def forward(
        self,
        queries: Queries,
        memory: Memory,
        state: AttentionState | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        if state is None and not need_weights and self.is_softmax_attention:
            return AttentionOutput(self.compute_context(queries, memory), None, None, None)
        if self.score.uses_history and queries.size(-2) > 1:
            return self._attend_sequentially(queries, memory, state)
        return self._attend_parallel(queries, memory, state)

    @property
    def is_softmax_attention(self) -> bool:
        """Whether this is softmax(q . k) v, whose context can be computed without weights."""
        # Exact types: a subclass may compute something else.
        return (
            type(self.score) in DOT_PRODUCT_SCORES
            and type(self.alignment_function) is SoftmaxAlignment
            and type(self.readout) is WeightedSumReadout
        )

    def compute_context(self, queries: Queries, memory: Memory) -> Context:
        """Return the context of a softmax attention, without its weights.

        The memory may have fewer heads than the queries if the number divides theirs.
        """
        assert isinstance(self.alignment_function, SoftmaxAlignment), self.alignment_function
        dropout = self.dropout.p if self.training else 0.0
        return softmax_context(queries, memory, self.alignment_function.temperature, dropout)

    @override
    def compute_weights(
        self, queries: Queries, memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        scores = self.score(queries, memory.keys, state)
        # Scores of positions alone are the same for all rows, and not yet expanded.
        scores = scores.expand(*queries.shape[:-1], -1)
        return self.alignment_function(scores, memory.mask, queries, state)

    @override
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        auxiliary_losses = cast(Iterable[AttentionLoss], self.auxiliary_losses)
        return {
            **self.alignment_function.compute_auxiliary_losses(loss_inputs),
            **{loss.name: loss(loss_inputs) for loss in auxiliary_losses},
        }

    def _attend_parallel(
        self, queries: Queries, memory: Memory, state: AttentionState | None
    ) -> AttentionOutput:
        alignment = self.compute_weights(queries, memory, state)
        context = self.readout(self.dropout(alignment.weights), memory.values, queries)
        next_state = state and self._next_state(state, alignment, context)
        return AttentionOutput(context, alignment.weights, alignment, next_state)

    def _attend_sequentially(
        self, queries: Queries, memory: Memory, state: AttentionState | None
    ) -> AttentionOutput:
        step_state: AttentionState | None = state or self.initial_state(memory)
        contexts, alignments = [], []
        for step, query in enumerate(queries.split(1, dim=-2)):
            mask = memory.mask
            step_mask = mask if mask.size(-2) == 1 else mask[..., step : step + 1, :]
            output = self._attend_parallel(query, memory._replace(mask=step_mask), step_state)
            step_state = output.state
            contexts.append(output.context)
            alignments.append(cast(AlignmentOutput, output.alignment))
        alignment = concat_alignments(alignments)
        context = torch.cat(contexts, dim=queries.dim() - 2)  # (*B, T, V) or (*B, T, S, V)
        return AttentionOutput(context, alignment.weights, alignment, state and step_state)

    def _next_state(
        self, state: AttentionState, alignment: AlignmentOutput, context: Tensor
    ) -> AttentionState:
        return AttentionState(
            state.num_queries + alignment.weights.size(-2),
            alignment.pointers[..., -1, :],
            state.coverage + alignment.weights.sum(dim=-2),
            state.last_context if self.readout.is_per_position else context[..., -1, :],
            state.uniform_sample,
        )


@op
def softmax_context(
    queries: Queries, memory: Memory, temperature: float, dropout: float
) -> Context:
    """softmax(q . k / temperature) v, where keys and values may have fewer heads than queries."""
    values, keys, mask = memory
    if queries.shape[:-2] != keys.shape[:-2]:
        num_repeats = queries.size(-3) // keys.size(-3)
        keys, values = (heads.repeat_interleave(num_repeats, dim=-3) for heads in (keys, values))
    weights = mask_scores(queries @ keys.mT / temperature, mask).softmax(dim=-1) * mask
    return functional.dropout(weights, dropout) @ values


def check_nonempty_source(values: Values) -> None:
    """Raise a `DataError` if the source has no positions."""
    check(
        values.size(-2) > 0,
        "attention",
        "the source sequence is empty",
        "remove empty lines, or append EOS to every source",
        DataError,
    )
