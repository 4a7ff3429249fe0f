"""Whole sequences of standard Transformer layers without their padding; only attention sees it.

Invariant: real positions equal those of the plain layers, up to rounding.
"""

from collections.abc import Iterable
from typing import NamedTuple, NoReturn, Self

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override

from heedful.acceleration.transformer_step import (
    Projection,
    StepAttention,
    StepCaches,
    StepEngine,
)
from heedful.attention.memory import Memory
from heedful.layers.transformer import Memories
from heedful.shapes import Float, HiddenStates, Int, SourceMask

TokenVectors = Float[Tensor, "N D"]
"""The real positions of a batch, one below the other."""


class Unpadding(NamedTuple):
    """Indices of the real positions of a padded batch."""

    mask: SourceMask
    indices: Int[Tensor, "N"]  # into the flattened batch

    @classmethod
    def from_mask(cls, mask: SourceMask) -> Self:
        """Find the real positions."""
        return cls(mask, mask.flatten().nonzero().squeeze(1))

    def unpad(self, padded: HiddenStates) -> TokenVectors:
        """Return the real positions."""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def pad(self, tokens: TokenVectors, buffer: HiddenStates | None = None) -> HiddenStates:
        """Put the real positions back among zeros, or into what `pad` has returned before."""
        if buffer is None:
            buffer = tokens.new_zeros(*self.mask.shape, tokens.size(1))
        buffer.flatten(0, 1).index_copy_(0, self.indices, tokens)
        return buffer


class UnpaddedAttention(StepCaches):
    """Self-attention among all positions of a sequence."""

    def __init__(self, unpadding: Unpadding) -> None:
        self.unpadding = unpadding
        self.buffer: HiddenStates | None = None  # of all layers: new pages take time

    @override
    def attend_to_cache(
        self, index: int, attention: StepAttention, projected: TokenVectors
    ) -> tuple[TokenVectors, None]:
        self.buffer = self.unpadding.pad(projected, self.buffer)
        split_heads = self.buffer.unflatten(-1, (3, attention.num_heads, -1))
        queries, keys, values = split_heads.permute(2, 0, 3, 1, 4)  # (B, H, S, K) each
        # A row without real keys has no real queries.
        mask = self.unpadding.mask[:, None, None]
        context = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)
        return self.unpadding.unpad(context.transpose(1, 2).flatten(2)), None

    @override
    def attend_to_memory(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("layers that read a source are causal")


def encode_unpadded(engine: StepEngine, inputs: HiddenStates, mask: SourceMask) -> HiddenStates:
    """Run standard layers and the final norm; only attention sees the padding."""
    unpadding = Unpadding.from_mask(mask)
    outputs, _ = engine.run(unpadding.unpad(inputs), UnpaddedAttention(unpadding))
    return unpadding.pad(outputs)


def build_memories_unpadded(
    projections: Iterable[tuple[Projection, int]], states: HiddenStates, mask: SourceMask
) -> Memories:
    """Build memories without padding, by projections to keys and values and numbers of heads."""
    unpadding, buffer = Unpadding.from_mask(mask), None
    tokens, memories = unpadding.unpad(states), []
    for projection, num_heads in projections:
        buffer = unpadding.pad(projection(tokens), buffer)
        split_heads = buffer.unflatten(-1, (2, num_heads, -1)).permute(2, 0, 3, 1, 4)
        keys, values = split_heads.clone(memory_format=torch.contiguous_format)
        memories.append(Memory(values, keys, mask[:, None, None]))
    return tuple(memories)
