"""Convolutions: what does a place make of itself and its neighbours?

Gated layers on top of one another (Gehring et al. 2017). Wherever two things are added, the sum is
multiplied by sqrt(0.5), and first weights are drawn so that what goes through a layer keeps its
variance: that of the sum of two unlike things is then the mean of theirs, however many layers
there are. Law: padding has no influence, and what is read from left to right piece by piece is
read as if it were whole.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, glu, linear, pad

from heedful.shapes import Bool, Float

HALVED = math.sqrt(0.5)
"""What a sum of two is multiplied by (Gehring et al. 2017, section 3.4)."""

EMBEDDING_SPREAD = 0.1
"""Standard deviation of the first vectors of words and of places (section 3.5)."""


class NormedConvolution(nn.Module):
    """W [x_i; ...; x_(i+k-1)] + b, each row of W a gain times a direction: w = g v / |v|.

    (Salimans & Kingma 2016.) First weights are drawn from N(0, sqrt(p / n)), n being the number of
    inputs and p the share that dropout leaves of them, or from N(0, sqrt(4 p / n)) where a gate
    follows, which lets about half through (Gehring et al. 2017, section 3.5). Nothing is added at
    the ends: of T + k - 1 places T come out. It is a part of its own, not a layer of torch, so
    that ways of beginning which know no gains and directions leave it as it is.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        kernel: int = 1,
        dropout: float = 0.0,
        is_gated: bool = False,
    ) -> None:
        super().__init__()
        variance = (4 if is_gated else 1) * (1 - dropout) / (kernel * input_size)
        weight = torch.randn(output_size, input_size, kernel) * math.sqrt(variance)
        self.direction = nn.Parameter(weight)
        self.gain = nn.Parameter(_lengths(weight))
        self.bias = nn.Parameter(torch.zeros(output_size))

    @property
    def weight(self) -> Float[Tensor, "D E K"]:
        """The weights that gains and directions make."""
        shortest = torch.finfo(self.direction.dtype).tiny
        scales = self.gain / _lengths(self.direction).clamp(min=shortest)
        return self.direction * scales[:, None, None]

    def forward(self, inputs: Float[Tensor, "B R E"]) -> Float[Tensor, "B T D"]:
        """Put every k neighbours together."""
        if self.direction.size(-1) == 1:
            return linear(inputs, self.weight.squeeze(-1), self.bias)
        return conv1d(inputs.transpose(1, 2), self.weight, self.bias).transpose(1, 2)


def _lengths(rows: Float[Tensor, "D E K"]) -> Float[Tensor, "D"]:
    return torch.linalg.vector_norm(rows, dim=(1, 2))


class GatedLayer(nn.Module):
    """(x_i + GLU(W [x of i and its neighbours] + b)) sqrt(0.5), GLU([A; B]) = A * sigmoid(B).

    (Gehring et al. 2017, sections 3.2 and 3.4.) Where the layer is wider or narrower than what it
    reads, x goes past through a matrix.
    """

    def __init__(self, input_size: int, size: int, *, kernel: int, dropout: float) -> None:
        super().__init__()
        self.input_size = input_size
        self.size = size
        self.kernel = kernel
        self.dropout = nn.Dropout(dropout)
        self.convolution = NormedConvolution(
            input_size, 2 * size, kernel=kernel, dropout=dropout, is_gated=True
        )
        self.past = nn.Identity() if input_size == size else NormedConvolution(input_size, size)

    def both_ways(
        self, inputs: Float[Tensor, "B S E"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Read whole sequences, as many neighbours before as after."""
        seen = inputs.masked_fill(~mask.unsqueeze(-1), 0)
        aside = (self.kernel - 1) // 2
        return self.join(inputs, self.gate(pad(seen, (0, 0, aside, aside))))

    def begin(self, inputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B R E"]:
        """Make what stands before the first place, for as many rows as these: zeros."""
        return inputs.new_zeros(len(inputs), self.kernel - 1, self.input_size)

    def back(
        self, inputs: Float[Tensor, "B T E"], recent: Float[Tensor, "B R E"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B R E"]]:
        """Let through what places see before them; give also what the next ones will see."""
        known = torch.cat([recent, inputs], dim=1)
        return self.gate(known), known[:, inputs.size(1) :]

    def gate(self, known: Float[Tensor, "B R E"]) -> Float[Tensor, "B T D"]:
        """Let through what every k neighbours make, k - 1 places fewer."""
        return glu(self.convolution(self.dropout(known)))

    def join(
        self, inputs: Float[Tensor, "B T E"], changed: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T D"]:
        """Add what was made of the inputs to what goes past."""
        return halved(self.past(inputs), changed)


def halved(one: Float[Tensor, "*B D"], other: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Add two things of one variance, and keep it."""
    return (one + other) * HALVED


class _SharedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, share: float) -> Tensor:
        ctx.share = share
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.share, None


def share_gradient(values: Float[Tensor, "*B D"], share: float) -> Float[Tensor, "*B D"]:
    """Leave the values as they are, and let this share of their gradient back."""
    return cast(Tensor, _SharedGradient.apply(values, share))
