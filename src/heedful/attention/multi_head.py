"""Multi-head attention, with grouped-query and multi-query attention.

Heads are a leading dimension: queries are (*B, H, T, Q), so any score, alignment and readout can be
used. Invariant: one head with identity projections equals attention without heads.
"""

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentLossInputs, AlignmentOutput
from heedful.attention.attention import AttentionOutput, AttentionWrapper, SingleHeadAttention
from heedful.attention.memory import AttentionState, Memory
from heedful.config import BaseConfig
from heedful.pytree import map_tensors
from heedful.shapes import Float, Losses, Queries, Values


class MultiHeadAttention(AttentionWrapper):
    """W_o [head_1; head_2; ...], head_i = attention(W_q,i q, W_k,i m, W_v,i m).

    (Vaswani et al. 2017, section 3.2.2.) With `num_kv_heads < num_heads`, adjacent heads share keys
    and values (Ainslie et al. 2023); with one key-value head all do (Shazeer 2019). The memory
    holds the key-value heads and is repeated when queried. Parameters of the alignment and the
    readout are shared by all heads.
    """

    inner: SingleHeadAttention

    def __init__(
        self,
        inner: SingleHeadAttention,
        *,
        query_size: int,
        memory_size: int,
        num_heads: int,
        head_dim: int,
        num_kv_heads: int | None = None,
        output_size: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(inner)
        num_kv_heads = num_kv_heads or num_heads
        assert num_heads % num_kv_heads == 0, (num_heads, num_kv_heads)
        assert not inner.readout.is_per_position, "per-position contexts cannot be merged"
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.query_projection = nn.Linear(query_size, num_heads * head_dim, bias=bias)
        self.key_projection = nn.Linear(memory_size, num_kv_heads * head_dim, bias=bias)
        self.value_projection = nn.Linear(memory_size, num_kv_heads * head_dim, bias=bias)
        self.output_size = output_size or memory_size
        self.output_projection = nn.Linear(num_heads * head_dim, self.output_size, bias=bias)

    @override
    def _project_memory(self, values: Values, keys: Values) -> tuple[Tensor, Tensor]:
        """Project values and keys to the key-value heads: (*B, G, S, V) and (*B, G, S, K)."""
        head_values = _split_heads(self.value_projection(values), self.num_kv_heads)
        return head_values, _split_heads(self.key_projection(keys), self.num_kv_heads)

    @override
    def initial_state(self, memory: Memory) -> AttentionState:
        return self.inner.initial_state(self._repeat_kv(memory))

    @override
    def forward(
        self,
        queries: Queries,
        memory: Memory,
        state: AttentionState | None = None,
        need_weights: bool = True,
    ) -> AttentionOutput:
        head_queries = _split_heads(self.query_projection(queries), self.num_heads)  # (*B, H, T, Q)
        if state is None and not need_weights and self.inner.is_softmax_attention:
            context = self.inner.compute_context(head_queries, memory)
            return AttentionOutput(self._merge_heads(context), None, None, None)
        output = self.inner(head_queries, self._repeat_kv(memory), state, need_weights)
        weights = None if output.weights is None else output.weights.mean(dim=-3)  # (*B, T, S)
        return output._replace(context=self._merge_heads(output.context), weights=weights)

    @override
    def compute_weights(
        self, queries: Queries, memory: Memory, state: AttentionState | None = None
    ) -> AlignmentOutput:
        head_queries = _split_heads(self.query_projection(queries), self.num_heads)
        return self.inner.compute_weights(head_queries, self._repeat_kv(memory), state)

    @override
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        """Sum the losses of the alignment over heads; average the other losses over heads.

        Heads sample independently, so the log-probability of all samples is the sum over heads. An
        auxiliary loss is averaged, so that its weight means the same for any number of heads.
        """
        alignment, *per_row = loss_inputs
        per_head = [
            rows.unsqueeze(-2).expand(*rows.shape[:-1], self.num_heads, -1) for rows in per_row
        ]
        head_inputs = AlignmentLossInputs(alignment, *per_head)
        losses = self.inner.auxiliary_losses
        means = {loss.name: loss(head_inputs) / self.num_heads for loss in losses}
        return {**self.alignment_function.compute_auxiliary_losses(head_inputs), **means}

    def _repeat_kv(self, memory: Memory) -> Memory:
        """Repeat the key-value heads of the memory for all heads."""
        dim, repeats = memory.values.dim() - 3, self.num_heads // self.num_kv_heads

        def repeat(tensor: Tensor) -> Tensor:
            # A PerHeadScore has prepared its keys for every head already.
            is_repeated = repeats == 1 or tensor.size(dim) == self.num_heads
            return tensor if is_repeated else tensor.repeat_interleave(repeats, dim=dim)

        return Memory(repeat(memory.values), map_tensors(repeat, memory.keys), memory.mask)

    def _merge_heads(self, context: Float[Tensor, "*B H T V"]) -> Float[Tensor, "*B T D"]:
        return self.output_projection(context.transpose(-3, -2).flatten(-2))


def _split_heads(inputs: Float[Tensor, "*B N D"], num_heads: int) -> Float[Tensor, "*B H N K"]:
    return inputs.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


class MultiHeadConfig(BaseConfig):
    """Number and size of attention heads (Vaswani et al. 2017)."""

    num_heads: PositiveInt = Field(default=8, le=1000)
    """Number of heads."""
    num_kv_heads: PositiveInt | None = Field(default=None, le=1000)
    """Number of key-value heads, a divisor of num_heads (Ainslie et al. 2023); 1 is multi-query
    attention. Default: num_heads."""
    head_dim: PositiveInt | None = None
    """Size of the queries, keys and values of a head. Default: memory size / num_heads."""
    bias: bool = False
    """Whether the query, key, value and output projections have a bias."""

    @model_validator(mode="after")
    def _check_divisible(self) -> "MultiHeadConfig":
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, but they are {self.num_heads} and "
                f"{self.num_kv_heads}"
            )
        return self
