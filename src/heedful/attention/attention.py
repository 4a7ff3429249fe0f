"""Attention: a score, an alignment and a readout, asked together.

What can be attended to is a value, `Memory`, made ready once per source and passed in; what was
found is a value too, `AttentionOutput`, with the `AttentionState` that the next queries go on from. The module
keeps nothing between calls. Law: queries asked together are answered as if one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn

from heedful.attention.alignments import AlignmentFunction, SoftAlignment
from heedful.attention.auxiliary_losses import AttentionLoss
from heedful.attention.outputs import (
    AlignmentLossInputs,
    AlignmentOutput,
    AttentionOutput,
    AttentionState,
    Memory,
    PreparedKeys,
    concat_alignments,
)
from heedful.attention.readouts import Readout
from heedful.attention.scores import ScoreFunction
from heedful.errors import DataError
from heedful.shapes import Bool, Float, Int

AttentionRole = Literal["cross", "self", "intra", "image"]


class Attention(nn.Module, ABC):
    """What can be asked to look into a memory, with one head or with many."""

    role: AttentionRole
    """What is looked into, seen from the queries."""

    if TYPE_CHECKING:
        # A submodule in one subclass, a property in the other: torch finds no submodule where a
        # base class has a property of its name.

        @property
        def score(self) -> ScoreFunction:
            """How strongly places call."""

        @property
        def alignment_function(self) -> AlignmentFunction:
            """Where attention goes."""

        @property
        def readout(self) -> Readout:
            """What is taken."""

    @property
    def is_stateful(self) -> bool:
        """Whether where earlier queries looked has a say in where is looked."""
        return self.score.uses_history or not isinstance(self.alignment_function, SoftAlignment)

    @property
    def needs_positions(self) -> bool:
        """Whether a query must be told its number."""
        return self.is_stateful or self.score.needs_positions

    @property
    @abstractmethod
    def has_auxiliary_losses(self) -> bool:
        """Whether anything is added to the loss for where attention goes."""

    @abstractmethod
    def build_memory(
        self,
        values: Float[Tensor, "*B S V"],
        mask: Bool[Tensor, "*#B #T S"],
        *,
        keys: Float[Tensor, "*B S V"] | None = None,
        start_positions: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Make a source ready to be attended to.

        It is called for by its `keys`, where these are not what is taken. Of a source that goes
        on from another, `first` is the number of the first place of each row.
        """

    @abstractmethod
    def initial_state(self, memory: Memory) -> AttentionState:
        """Nothing has been asked of this memory."""

    @abstractmethod
    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        memory: Memory,
        state: AttentionState | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Look into the memory, once for every query; no past means that none was asked yet.

        Whoever carries no past and does not need the weights may get none: they are then not
        made where the context can be had without them.
        """

    @abstractmethod
    def compute_weights(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        """Say where each query looks, without taking anything."""

    @abstractmethod
    def compute_auxiliary_losses(
        self, loss_inputs: AlignmentLossInputs
    ) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went."""


class SingleHeadAttention(Attention):
    """The three choices that make an attention mechanism, and nothing else."""

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
        """`dropout` is the share of weights that are not taken by, in training."""
        super().__init__()
        self.score = score
        self.alignment_function = alignment_function
        self.readout = readout
        self.auxiliary_losses = nn.ModuleList(auxiliary_losses)
        self.role = role
        self.dropout = nn.Dropout(dropout)

    @property
    def has_auxiliary_losses(self) -> bool:
        """Whether anything is added to the loss for where attention goes."""
        learns_by_it = (
            type(self.alignment_function).compute_auxiliary_losses
            is not AlignmentFunction.compute_auxiliary_losses
        )
        return learns_by_it or len(self.auxiliary_losses) > 0

    def build_memory(
        self,
        values: Float[Tensor, "*B S V"],
        mask: Bool[Tensor, "*#B #T S"],
        *,
        keys: Float[Tensor, "*B S V"] | None = None,
        start_positions: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Make a source ready to be attended to."""
        check_nonempty_source(values)
        full_mask = mask.expand(*values.shape[:-2], -1, -1)  # (*B, T or 1, S)
        return Memory(
            values, self.prepare_keys(values if keys is None else keys, start_positions), full_mask
        )

    def prepare_keys(
        self, keys: Float[Tensor, "*B S K"], start_positions: Int[Tensor, "_"] | None = None
    ) -> PreparedKeys:
        """Do once what concerns the keys alone; they stand from `first` on, or from 0."""
        return (
            self.score.prepare_keys(keys)
            if start_positions is None
            else self.score.prepare_keys_at(start_positions, keys)
        )

    def initial_state(self, memory: Memory) -> AttentionState:
        """Nothing has been asked of this memory."""
        values = memory.values
        zero_weights = values.new_zeros(values.shape[:-1])  # (*B, S)
        zero_context = torch.zeros_like(values[..., 0, :])  # (*B, V)
        draw = torch.rand if self.training else torch.ones
        chance = draw(zero_weights.shape[:-1], device=values.device)
        return AttentionState(
            torch.zeros_like(chance, dtype=torch.long),
            zero_weights,
            zero_weights,
            zero_context,
            chance,
        )

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        memory: Memory,
        state: AttentionState | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Look into the memory, once for every query; no past means that none was asked yet."""
        if state is None and not need_weights:
            context = self.fused_context(queries, memory)
            if context is not None:
                return AttentionOutput(context, None, None, None)
        if self.score.uses_history and queries.size(-2) > 1:
            return self._attend_sequentially(queries, memory, state)
        return self._attend_parallel(queries, memory, state)

    def fused_context(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory
    ) -> Float[Tensor, "*B T V"] | None:
        """Take a context without making weights, or None where that cannot be done.

        The memory may have fewer heads than the queries, if their number divides that of these.
        """
        from heedful.acceleration.dispatch import select_context_kernel

        form = select_context_kernel(self.score, self.alignment_function, self.readout)
        dropped = self.dropout.p if self.training else 0.0
        return form and form(queries, memory.keys, memory.values, memory.mask, dropped)

    def compute_weights(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        """Say where each query looks, without taking anything."""
        scores = self.score(queries, memory.keys, state)
        # A score that asks for places alone says the same of every row, and says it once.
        scores = scores.expand(*queries.shape[:-1], -1)
        return self.alignment_function(scores, memory.mask, queries, state)

    def compute_auxiliary_losses(
        self, loss_inputs: AlignmentLossInputs
    ) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went."""
        auxiliary_losses = cast(Iterable[AttentionLoss], self.auxiliary_losses)
        return self.alignment_function.compute_auxiliary_losses(loss_inputs) | {
            each.name: each(loss_inputs) for each in auxiliary_losses
        }

    def _attend_parallel(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, state: AttentionState | None
    ) -> AttentionOutput:
        aligned = self.compute_weights(queries, memory, state)
        context = self.readout(self.dropout(aligned.weights), memory.values, queries)
        after = state and self._next_state(state, aligned, context)
        return AttentionOutput(context, aligned.weights, aligned, after)

    def _attend_sequentially(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, state: AttentionState | None
    ) -> AttentionOutput:
        after: AttentionState | None = state or self.initial_state(memory)
        contexts, parts = [], []
        for place, query in enumerate(queries.split(1, dim=-2)):
            mask = memory.mask
            seen = mask if mask.size(-2) == 1 else mask[..., place : place + 1, :]
            attended = self._attend_parallel(query, memory._replace(mask=seen), after)
            after = attended.state
            contexts.append(attended.context)
            parts.append(cast(AlignmentOutput, attended.alignment))
        aligned = concat_alignments(parts)
        context = torch.cat(contexts, dim=queries.dim() - 2)  # (*B, T, V) or (*B, T, S, V)
        return AttentionOutput(context, aligned.weights, aligned, state and after)

    def _next_state(
        self, state: AttentionState, aligned: AlignmentOutput, context: Tensor
    ) -> AttentionState:
        return AttentionState(
            state.num_queries + aligned.weights.size(-2),
            aligned.pointers[..., -1, :],
            state.coverage + aligned.weights.sum(dim=-2),
            state.last_context if self.readout.is_per_position else context[..., -1, :],
            state.uniform_sample,
        )


def check_nonempty_source(values: Float[Tensor, "*B S V"]) -> None:
    """Complain about a source without positions."""
    if values.size(-2) == 0:
        raise DataError(
            "attention",
            "there is nothing to attend to: the source has no positions",
            "leave empty sources out, or end each with a symbol",
        )
