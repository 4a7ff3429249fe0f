"""Whole sequences of standard Transformer layers without their padding; only attention sees it.

Invariant: real positions equal those of the plain layers, up to rounding.
"""

from collections.abc import Iterable
from typing import NamedTuple, Self

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from heedful.acceleration.cpu.packed_linear import activate_inplace
from heedful.acceleration.transformer_step import multi_head_and_temperature
from heedful.attention.memory import Memory
from heedful.layers.sublayers import FeedForward
from heedful.layers.transformer import Memories, TransformerLayer
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

    def pad(self, tokens: TokenVectors) -> HiddenStates:
        """Put the real positions back among zeros."""
        padded = tokens.new_zeros(self.mask.numel(), tokens.size(1))
        return padded.index_copy_(0, self.indices, tokens).view(*self.mask.shape, -1)

    def project_to_heads(
        self, projection: nn.Linear, tokens: TokenVectors, num_heads: int
    ) -> Float[Tensor, "B H S K"]:
        """Project the real positions; return them padded, with one part for each head."""
        return self.pad(projection(tokens)).unflatten(-1, (num_heads, -1)).transpose(1, 2)


def encode_unpadded(
    layers: Iterable[TransformerLayer], inputs: HiddenStates, mask: SourceMask
) -> HiddenStates:
    """Run standard layers over whole sequences; only attention sees the padding."""
    unpadding = Unpadding.from_mask(mask)
    tokens = unpadding.unpad(inputs)
    for layer in layers:
        connection = layer.self_attention_residual
        heads, temperature = multi_head_and_temperature(layer.self_attention.attention)
        projections = heads.query_projection, heads.key_projection, heads.value_projection
        sublayer_input = connection.sublayer_input(tokens)
        queries, keys, values = (
            unpadding.project_to_heads(projection, sublayer_input, heads.num_heads)
            for projection in projections
        )
        context = scaled_dot_product_attention(
            queries,
            heads.score.prepare_keys(keys),
            values,
            attn_mask=mask[:, None, None],  # a row without real keys has no real queries
            scale=1 / temperature,
        )
        context = unpadding.unpad(context.transpose(1, 2).flatten(2))
        tokens = connection.add_residual(tokens, heads.output_projection(context))
        feed_forward, connection = layer.feed_forward, layer.feed_forward_residual
        assert isinstance(feed_forward, FeedForward), type(feed_forward)
        hidden = feed_forward.input_projection(connection.sublayer_input(tokens))
        hidden = activate_inplace(feed_forward.activation, hidden)
        tokens = connection.add_residual(tokens, feed_forward.output_projection(hidden))
    return unpadding.pad(tokens)


def build_memories_unpadded(
    layers: Iterable[TransformerLayer], states: HiddenStates, mask: SourceMask
) -> Memories:
    """Build the memories of standard cross-attention without projecting padding."""
    unpadding = Unpadding.from_mask(mask)
    tokens = unpadding.unpad(states)
    memories = []
    for layer in layers:
        if layer.cross_attention is None:
            continue
        heads, _ = multi_head_and_temperature(layer.cross_attention.attention)
        values = unpadding.project_to_heads(heads.value_projection, tokens, heads.num_heads)
        keys = unpadding.project_to_heads(heads.key_projection, tokens, heads.num_heads)
        prepared = heads.score.prepare_keys(keys)
        memories.append(Memory(values.contiguous(), prepared.contiguous(), mask[:, None, None]))
    return tuple(memories)
