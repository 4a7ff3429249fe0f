"""The parts around the sublayers of a Transformer: residual connections and cross-attention.

A sublayer is norm(x + f(x)) with `norm_order` "post" (Vaswani et al. 2017), x + f(norm(x)) with
"pre" (Xiong et al. 2020).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.memory import AttentionState, Memory
from heedful.shapes import Float, HiddenStates

NormOrder = Literal["pre", "post"]


class SublayerConnection(nn.Module):
    """A residual connection with a norm, and dropout on the sublayer output.

    With `drop_path` a training row skips the sublayer with that probability, drawn for each row,
    and the others are scaled to keep the mean (stochastic depth, Huang et al. 2016).
    """

    def __init__(
        self, norm: nn.Module, *, norm_order: NormOrder, dropout: float, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = norm
        self.norm_order = norm_order
        self.dropout = nn.Dropout(dropout)
        self.drop_path = drop_path

    def sublayer_input(self, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return the input of the sublayer: normalized with pre-norm."""
        return self.norm(inputs) if self.norm_order == "pre" else inputs

    def add_residual(
        self, inputs: Float[Tensor, "*B D"], update: Float[Tensor, "*B D"]
    ) -> Float[Tensor, "*B D"]:
        """Add the sublayer output, after dropout, to its input; post-norm normalizes the sum."""
        update = self.dropout(update)
        if self.training and self.drop_path:
            is_kept = torch.rand(len(update), 1, 1, device=update.device) >= self.drop_path
            update = update * is_kept / (1 - self.drop_path)
        outputs = inputs + update
        return self.norm(outputs) if self.norm_order == "post" else outputs


class CrossAttention(nn.Module):
    """The sublayer that attends to a source."""

    def __init__(self, attention: Attention, residual: SublayerConnection) -> None:
        super().__init__()
        self.attention = attention
        self.residual = residual

    def initial_state(self, memory: Memory) -> AttentionState | None:
        """Return the state before the first query, or None if attention does not depend on it."""
        return self.attention.initial_state(memory) if self.attention.needs_positions else None

    def forward(
        self,
        inputs: HiddenStates,
        memory: Memory,
        state: AttentionState | None,
        *,
        need_weights: bool,
    ) -> tuple[HiddenStates, AttentionOutput]:
        """Attend to the memory from each position; return the residual sum and the attention."""
        queries = self.residual.sublayer_input(inputs)
        needs_weights = need_weights or self.attention.has_auxiliary_losses
        attended = self.attention(queries, memory, state, need_weights=needs_weights)
        return self.residual.add_residual(inputs, attended.context), attended
