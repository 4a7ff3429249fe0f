"""Attention: a score, an alignment and a readout applied to a memory.

`Memory` is prepared once per source; `AttentionOutput` carries the `AttentionState`. Modules keep
nothing between calls. Invariant: queries in one call give the same results as one at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from heedful.attention.alignments import (
    AlignmentFunction,
    AlignmentLossInputs,
    AlignmentOutput,
    SoftAlignment,
    SoftmaxAlignment,
    concat_alignments,
    mask_scores,
)
from heedful.attention.auxiliary_losses import AttentionLoss
from heedful.attention.masks import broadcast_mask
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.readouts import Readout, WeightedSumReadout
from heedful.attention.scores import DOT_PRODUCT_SCORES, ScoreFunction, StartPositions
from heedful.errors import DataError
from heedful.ops import op
from heedful.shapes import AnyMask, Context, Float, Losses, Queries, Scores, Values, Weights

AttentionRole = Literal["cross", "self", "intra", "image"]
MAX_UNBLOCKED_WEIGHTS = 2**24
"""Of a call that needs none and no gradient; of more, some queries attend at a time."""
_BLOCK_WEIGHTS = 2**21


class AttentionOutput(NamedTuple):
    """Output of an attention call."""

    context: Context | Float[Tensor, "*B T S V"]  # the latter from PerPositionReadout
    weights: Weights | None  # the mean over heads; None if not needed
    alignment: AlignmentOutput | None  # with several heads, of every head
    state: AttentionState | None  # for the next queries; None if no state was passed in


class Attention(nn.Module, ABC):
    """Interface of attention with one head or several."""

    role: AttentionRole
    """What the memory is, relative to the queries; used in traces."""
    is_segmented: bool = False
    """Whether positions of the memory are not those of the sequence: blocks, or segments."""
    score: ScoreFunction
    alignment_function: AlignmentFunction
    readout: Readout

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

    def build_memory(
        self,
        values: Values,
        mask: AnyMask = None,
        *,
        keys: Values | None = None,
        start_positions: StartPositions = None,
    ) -> Memory:
        """Prepare a source for attention; `keys` default to the values.

        The mask is (*B, S), or (*B, T, S) if it differs between queries; None masks nothing. If the
        source continues another one, `start_positions` is the position of each row's first key.
        """
        if not values.size(-2):
            hint = "remove empty lines, or append EOS to every source"
            raise DataError("attention", "the source sequence is empty", hint)
        head_values, head_keys = self._project_memory(values, values if keys is None else keys)
        *batch, num_keys, _ = values.shape
        mask = broadcast_mask(mask, batch, num_keys, device=values.device)
        mask = mask.expand(*batch, -1, -1)  # (*B, T or 1, S)
        if head_values.dim() > values.dim():
            mask = mask.unsqueeze(-3)  # the same for all heads
        if start_positions is None:
            return Memory(head_values, self.score.prepare_keys(head_keys), mask)
        return Memory(head_values, self.score.prepare_keys_at(start_positions, head_keys), mask)

    def _project_memory(self, values: Values, keys: Values) -> tuple[Tensor, Tensor]:
        return values, keys

    @abstractmethod
    def initial_state(self, memory: Memory) -> AttentionState:
        """Return the state before the first query."""

    @abstractmethod
    def forward(
        self,
        queries: Queries,
        memory: Memory,
        state: AttentionState | None = None,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Attend to `memory` with each query.

        With `need_weights=False`, `weights` and `alignment` may be None.
        """

    @abstractmethod
    def compute_weights(
        self, queries: Queries, memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        """Return the alignment of each query without computing a context."""

    @abstractmethod
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        """Return the losses on the alignment by name, summed over the targets of the batch."""


class AttentionWrapper(Attention):
    """Attention around another one, with the score, alignment and readout of that one."""

    def __init__(self, inner: Attention) -> None:
        super().__init__()
        self.inner = inner
        self.role = inner.role

    @property
    def score(self) -> ScoreFunction:  # type: ignore[override]
        """The score function of `inner`."""
        return self.inner.score

    @property
    def alignment_function(self) -> AlignmentFunction:  # type: ignore[override]
        """The alignment of `inner`."""
        return self.inner.alignment_function

    @property
    def readout(self) -> Readout:  # type: ignore[override]
        """The readout of `inner`."""
        return self.inner.readout

    @property
    @override
    def has_auxiliary_losses(self) -> bool:
        return self.inner.has_auxiliary_losses


def outer_attention(model: nn.Module) -> Iterator[tuple[str, Attention]]:
    """Yield each attention of a model with its path, those inside another one left out."""
    inner: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(module, Attention) and module not in inner:
            inner.update(module.modules())
            yield path, module


class SingleHeadAttention(Attention):
    """readout(alignment(score(queries, keys)), values)."""

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
        self.auxiliary_losses = cast(Sequence[AttentionLoss], nn.ModuleList(auxiliary_losses))
        self.role = role
        self.dropout = nn.Dropout(dropout)

    @property
    @override
    def has_auxiliary_losses(self) -> bool:
        return len(self.auxiliary_losses) > 0 or self.alignment_function.has_auxiliary_losses

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
        need_weights: bool = True,
    ) -> AttentionOutput:
        if state is None and not need_weights and self.is_softmax_attention:
            return AttentionOutput(self.compute_context(queries, memory), None, None, None)
        if self.score.uses_history and queries.size(-2) > 1:
            return self._attend_steps(queries, memory, state)
        needs_all = need_weights or torch.is_grad_enabled() or torch.compiler.is_compiling()
        if not needs_all and not self.readout.is_per_position:
            num_weights = queries.numel() // queries.size(-1) * memory.mask.size(-1)
            if num_weights > MAX_UNBLOCKED_WEIGHTS:
                size = max(1, queries.size(-2) * _BLOCK_WEIGHTS // num_weights)
                return self._attend_blocks(queries, memory, state, size)
        return attend(self, queries, memory, state)

    def _attend_blocks(
        self, queries: Queries, memory: Memory, state: AttentionState | None, size: int
    ) -> AttentionOutput:
        """Attend with some queries at a time, whose weights are not kept."""
        next_state: AttentionState | None = state or self.initial_state(memory)
        *batch, num_queries, _ = queries.shape
        mask = broadcast_mask(memory.mask, batch, memory.values.size(-2), num_queries)
        # In place: results between freed weights would keep the allocator from using these again.
        context = memory.values.new_empty(*batch, num_queries, memory.values.size(-1))
        for start in range(0, num_queries, size):
            rows = slice(start, start + size)
            block_memory = memory._replace(mask=mask if mask.size(-2) == 1 else mask[..., rows, :])
            output = attend(self, queries[..., rows, :], block_memory, next_state)
            context[..., rows, :] = output.context
            next_state = output.state
        return AttentionOutput(context, None, None, state and next_state)

    def _attend_steps(
        self, queries: Queries, memory: Memory, state: AttentionState | None
    ) -> AttentionOutput:
        step_state: AttentionState | None = state or self.initial_state(memory)
        *batch, num_queries, _ = queries.shape
        mask = broadcast_mask(memory.mask, batch, memory.values.size(-2), num_queries)
        contexts, alignments = [], []
        for step, query in enumerate(queries.split(1, dim=-2)):
            step_mask = mask if mask.size(-2) == 1 else mask[..., step : step + 1, :]
            output = self.forward(query, memory._replace(mask=step_mask), step_state)
            step_state = output.state
            contexts.append(output.context)
            alignments.append(cast(AlignmentOutput, output.alignment))
        alignment = concat_alignments(alignments)
        context = torch.cat(contexts, dim=queries.dim() - 2)  # (*B, T, V) or (*B, T, S, V)
        return AttentionOutput(context, alignment.weights, alignment, state and step_state)

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
        """Return the context of softmax attention; queries may have a multiple of the heads."""
        assert isinstance(self.alignment_function, SoftmaxAlignment), self.alignment_function
        *batch, num_queries, _ = queries.shape
        mask = broadcast_mask(memory.mask, batch, memory.values.size(-2), num_queries)
        memory = memory._replace(mask=mask)
        dropout = self.dropout.p if self.training else 0.0
        return softmax_context(queries, memory, self.alignment_function.temperature, dropout)

    @override
    def compute_weights(
        self, queries: Queries, memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        scores = self.score(queries, memory.keys, state)
        return self.alignment_function(scores, memory.mask, queries, state)

    @override
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        return {
            **self.alignment_function.compute_auxiliary_losses(loss_inputs),
            **{loss.name: loss(loss_inputs) for loss in self.auxiliary_losses},
        }


@op
def attend(
    attention: SingleHeadAttention, queries: Queries, memory: Memory, state: AttentionState | None
) -> AttentionOutput:
    """Compute weights and context of each query, and the state after them."""
    scores = attention.score(queries, memory.keys, state)
    return attend_with_scores(attention, scores, queries, memory, state)


def attend_with_scores(
    attention: SingleHeadAttention,
    scores: Scores,
    queries: Queries,
    memory: Memory,
    state: AttentionState | None,
) -> AttentionOutput:
    """Return the output of `attend` from its scores; a masked pair may have any finite score."""
    alignment = attention.alignment_function(scores, memory.mask, queries, state)
    weights = alignment.weights
    context = attention.readout(attention.dropout(weights), memory.values, queries)
    if state is not None:
        state = AttentionState(
            state.num_queries + weights.size(-2),
            alignment.pointers[..., -1, :],
            state.coverage + weights.sum(dim=-2),
            state.last_context if attention.readout.is_per_position else context[..., -1, :],
            state.uniform_sample,
        )
    return AttentionOutput(context, weights, alignment, state)


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
