"""Whole sequences of standard Transformer layers without their padding; only attention sees it.

Invariant: real positions equal those of the plain layers, up to rounding.
"""

from typing import NamedTuple, NoReturn, Self

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override

from heedful.acceleration.transformer_step import StepAttention, StepCaches
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
        mask = self.unpadding.mask[:, None, None]  # a row without real keys has no real queries
        context = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)
        return self.unpadding.unpad(context.transpose(1, 2).flatten(2)), None

    @override
    def attend_to_memory(
        self, index: int, attention: StepAttention, queries: TokenVectors, *, need_weights: bool
    ) -> NoReturn:
        raise AssertionError("layers that read a source are causal")
