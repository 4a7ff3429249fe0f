"""A softmax head that computes single decoding steps with a packed weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.packed_linear import PackedLinear, can_pack
from heedful.attention.outputs import Memory
from heedful.models.output_heads import SoftmaxHead
from heedful.shapes import Float


def can_pack_head(head: SoftmaxHead) -> bool:
    """Whether the projection is exactly a linear map, whose forward hooks can be checked."""
    return type(head.projection) is nn.Linear


class PackedSoftmaxHead(SoftmaxHead):
    """log softmax(W f + b) with W packed for few rows, normalized in place."""

    _packed: PackedLinear | None = None

    @override
    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        if not self._is_single_step(features):
            return super().forward(features, weights, memory)
        if tuning.MIN_PACKED_ROWS <= len(features) <= tuning.MAX_PACKED_ROWS:
            self._packed = self._packed or PackedLinear.from_linear(self.projection)
            logits = self._packed(features.squeeze(1)).unsqueeze(1)
        else:
            logits = self.projection(features)
        return torch.log_softmax(logits, dim=-1, out=logits)

    def _is_single_step(self, features: Tensor) -> bool:
        return (
            features.dim() == 3
            and features.size(1) == 1
            and not self.training
            and can_pack(features)
            and not self.projection._forward_hooks
        )
