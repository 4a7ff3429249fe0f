"""Heads, as a configuration names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.alignments import AlignmentFunction
from heedful.attention.attention import Attention, SingleHeadAttention, check_nonempty_source
from heedful.attention.auxiliary_losses import AttentionLoss
from heedful.attention.outputs import (
    AlignmentLossInputs,
    AlignmentOutput,
    AttentionOutput,
    AttentionState,
    Memory,
)
from heedful.attention.readouts import Readout
from heedful.attention.scores import ScoreFunction
from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.pytree import map_tensors
from heedful.shapes import Bool, Float, Int

# Heads: how does one question look in several places at once?
#
# Heads are leading dimensions: each asks its own question, (*B, H, T, Q), of its own part of the
# memory, so any score, alignment and readout serves them. Law: one head whose projections change
# nothing is attention without heads.


class MultiHeadAttention(Attention):
    """W_o [head_1; head_2; ...], head_i = attend(W_q,i q, W_k,i m, W_v,i m).

    (Vaswani et al. 2017, section 3.2.2.) With fewer groups than heads, neighbouring heads share
    the keys and values of one group (Ainslie et al. 2023); with a single group all do (Shazeer
    2019). A memory holds those of the groups: they are spread over the heads when asked. What the
    alignment and the readout learn is the same for every head.
    """

    def __init__(
        self,
        inner: SingleHeadAttention,
        *,
        query_size: int,
        memory_size: int,
        num_heads: int,
        head_size: int,
        num_kv_heads: int | None = None,
        output_size: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        num_kv_heads = num_kv_heads or num_heads
        assert num_heads % num_kv_heads == 0, (num_heads, num_kv_heads)
        assert not inner.readout.is_per_position, "a context for each place cannot be put together"
        self.inner = inner
        self.role = inner.role
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.query_projection = nn.Linear(query_size, num_heads * head_size, bias=bias)
        self.key_projection = nn.Linear(memory_size, num_kv_heads * head_size, bias=bias)
        self.value_projection = nn.Linear(memory_size, num_kv_heads * head_size, bias=bias)
        self.output_size = output_size or memory_size
        self.output_projection = nn.Linear(num_heads * head_size, self.output_size, bias=bias)

    @property
    def score(self) -> ScoreFunction:
        """How strongly each head's query calls for its keys."""
        return self.inner.score

    @property
    def alignment_function(self) -> AlignmentFunction:
        """Where each head's attention goes."""
        return self.inner.alignment_function

    @property
    def readout(self) -> Readout:
        """What each head takes."""
        return self.inner.readout

    def build_memory(
        self,
        values: Float[Tensor, "*B S V"],
        mask: Bool[Tensor, "*#B #T S"],
        *,
        keys: Float[Tensor, "*B S V"] | None = None,
        start_positions: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Make a source ready to be attended to, once for each group."""
        check_nonempty_source(values)
        values_per_head = _split_heads(
            self.value_projection(values), self.num_kv_heads
        )  # (*B, G, S, V)
        keys_per_head = self.key_projection(values if keys is None else keys)
        full_mask = mask.expand(*values.shape[:-2], -1, -1).unsqueeze(-3)  # (*B, 1, T or 1, S)
        prepared = self.inner.prepare_keys(
            _split_heads(keys_per_head, self.num_kv_heads), start_positions
        )
        return Memory(values_per_head, prepared, full_mask)

    @property
    def has_auxiliary_losses(self) -> bool:
        """Whether anything is added to the loss for where any head's attention goes."""
        return self.inner.has_auxiliary_losses

    def initial_state(self, memory: Memory) -> AttentionState:
        """Nothing has been asked of this memory, by any head."""
        return self.inner.initial_state(self._repeat_kv(memory))

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        memory: Memory,
        state: AttentionState | None = None,
        *,
        need_weights: bool = True,
    ) -> AttentionOutput:
        """Look into the memory with every head, once for every query."""
        head_queries = _split_heads(self.query_projection(queries), self.num_heads)  # (*B, H, T, Q)
        if state is None and not need_weights:
            context = self.inner.fused_context(head_queries, memory)
            if context is not None:
                return AttentionOutput(self._merge_heads(context), None, None, None)
        attended = self.inner(head_queries, self._repeat_kv(memory), state)
        weights = attended.weights.mean(dim=-3)  # (*B, T, S)
        return attended._replace(context=self._merge_heads(attended.context), weights=weights)

    def compute_weights(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        """Say where each head looks for each query, without taking anything."""
        head_queries = _split_heads(self.query_projection(queries), self.num_heads)
        return self.inner.compute_weights(head_queries, self._repeat_kv(memory), state)

    def compute_auxiliary_losses(
        self, loss_inputs: AlignmentLossInputs
    ) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went.

        What an alignment needs to learn is added up over the heads: each chose for itself, so the
        log-probability of what all chose is the sum of theirs. A penalty is the mean over the
        heads, so that its weight means the same for any number of them.
        """
        expanded_inputs = AlignmentLossInputs(
            loss_inputs.alignment,
            self._expand_to_heads(loss_inputs.log_likelihoods),
            self._expand_to_heads(loss_inputs.target_mask),
            self._expand_to_heads(loss_inputs.source_mask),
        )
        auxiliary_losses = cast(Iterable[AttentionLoss], self.inner.auxiliary_losses)
        means = {each.name: each(expanded_inputs) / self.num_heads for each in auxiliary_losses}
        return self.inner.alignment_function.compute_auxiliary_losses(expanded_inputs) | means

    def _repeat_kv(self, memory: Memory) -> Memory:
        """Give each head the keys and values of its group."""
        axis, times = memory.values.dim() - 3, self.num_heads // self.num_kv_heads

        def spread(each: Tensor) -> Tensor:
            # A score of each head's own has prepared keys for each head already.
            is_spread = times == 1 or each.size(axis) == self.num_heads
            return each if is_spread else each.repeat_interleave(times, dim=axis)

        return Memory(spread(memory.values), map_tensors(spread, memory.keys), memory.mask)

    def _merge_heads(self, context: Float[Tensor, "*B H T V"]) -> Float[Tensor, "*B T D"]:
        return self.output_projection(context.transpose(-3, -2).flatten(-2))

    def _expand_to_heads(self, rows: Tensor) -> Tensor:
        """Say to every head what is the same for all: (*B, N) becomes (*B, H, N)."""
        return rows.unsqueeze(-2).expand(*rows.shape[:-1], self.num_heads, -1)


def _split_heads(inputs: Float[Tensor, "*B N D"], num_heads: int) -> Float[Tensor, "*B H N K"]:
    return inputs.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


class MultiHeadConfig(BaseConfig):
    """Ask several questions at once, each of its own part of the memory (Vaswani et al. 2017)."""

    num_heads: PositiveInt = 8
    """How many."""
    num_kv_heads: PositiveInt | None = None
    """Heads of the keys and values, each shared by as many of the questions (Ainslie et al. 2023):
    1 is multi-query attention; if not given, none is shared."""
    head_dim: PositiveInt | None = None
    """Width of a question, a key and a value; if not given, the memory's width is parted."""
    bias: bool = False
    """Whether the projections into the heads and out of them add a vector."""

    @model_validator(mode="after")
    def _check_divisible(self) -> MultiHeadConfig:
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} groups evenly: num_groups "
                f"must divide num_heads"
            )
        return self

    def resolve_head_dim(self, memory_size: int) -> int:
        """How wide a head is, over a memory of this width."""
        if self.head_dim:
            return self.head_dim
        if memory_size % self.num_heads:
            raise ConfigError(
                "multi_head.num_heads",
                f"a memory of width {memory_size} cannot be parted among {self.num_heads} heads",
                "choose a number that divides the width, or give head_size",
            )
        return memory_size // self.num_heads

    def build(
        self,
        inner: SingleHeadAttention,
        *,
        query_size: int,
        memory_size: int,
        output_size: int | None = None,
    ) -> MultiHeadAttention:
        """Put heads round a mechanism that was made for one."""
        if inner.readout.is_per_position:
            raise ConfigError(
                "heads",
                "the contexts of several heads are put together, but 'per-position' keeps one "
                "for every place",
                "leave heads out, or choose another readout",
            )
        return MultiHeadAttention(
            inner,
            query_size=query_size,
            memory_size=memory_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.resolve_head_dim(memory_size),
            output_size=output_size,
            bias=self.bias,
        )
