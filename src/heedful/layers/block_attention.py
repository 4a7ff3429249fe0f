"""Block attention: a sequence cut into blocks, each of which sees itself alone.

Law: it is full attention under a mask of blocks, for time and memory that grow with the length of
a sequence and not with its square.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.attention.attend import Attends
from heedful.layers.self_attention import Cache, FullSelfAttention, SelfAttended, extend
from heedful.shapes import Bool, Float, Int


class BlockSelfAttention(FullSelfAttention):
    """Places see those of their own block of so many  (Liu et al. 2018, section 4.2.3: 256)."""

    def __init__(self, attention: Attends, *, block: int) -> None:
        super().__init__(attention)
        self.block = block

    def both_ways(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at all those of their block."""
        numbers = torch.arange(inputs.size(1), device=inputs.device)
        real = (numbers < lengths.unsqueeze(1)).unsqueeze(-1)  # (B, S, 1)
        visible = self._blocks(real).transpose(1, 2)  # (B * blocks, 1, block)
        return self._in_blocks(inputs, visible)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: Cache,
        first: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttended:
        """Let places look at themselves and back to where their block begins."""
        if cache.held is not None or need_weights or inputs.size(1) <= self.block:
            return super().forward(inputs, cache, first, lengths, need_weights=need_weights)
        numbers = torch.arange(self.block, device=inputs.device)
        outputs = self._in_blocks(inputs, (numbers <= numbers.unsqueeze(1)).unsqueeze(0))
        held, _ = extend(self.attention, inputs, None, first)
        return SelfAttended(outputs, None, Cache(held))

    def visible(self, seen: Int[Tensor, "S"], own: Int[Tensor, "#B T 1"]) -> Bool[Tensor, "#B T S"]:
        """Say which places a place of this number sees."""
        return (seen <= own) & (seen // self.block == own // self.block)

    def _in_blocks(
        self, inputs: Float[Tensor, "B S D"], visible: Bool[Tensor, "#N #L L"]
    ) -> Float[Tensor, "B S D"]:
        blocks = self._blocks(inputs)
        memory = self.attention.remember(blocks, visible)
        found = self.attention(blocks, memory, need_weights=False).context
        return found.reshape(len(inputs), -1, found.size(-1))[:, : inputs.size(1)]

    def _blocks(self, values: Tensor) -> Tensor:
        """Cut (B, S, X) into blocks that count as rows, (B * blocks, block, X)."""
        missing = -values.size(1) % self.block
        return pad(values, (0, 0, 0, missing)).reshape(-1, self.block, values.size(-1))
