"""Reading a part of an image: the glimpse sensor of several scales, and the window of DRAW.

Locations are (row, column), from -1 at the upper left corner to 1 at the lower right one. Boxes are
(top, left, height, width) in pixels. Invariant: rows of a batch do not influence one another.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from heedful.shapes import Float, Int

_EPSILON = 1e-8


class GlimpseSensor(nn.Module):
    """rho(x, l): square patches around l, the first of g x g pixels, each twice the one before.

    All are averaged down to g x g (Mnih et al. 2014, section 3.1). Corners are rounded to whole
    pixels, so that the center of each patch is within half a pixel of l; what lies outside of the
    image is zero. All scales of even size are cut by one gather.
    """

    def __init__(self, image_size: int, glimpse_size: int, num_scales: int) -> None:
        super().__init__()
        self.image_size = image_size
        self.glimpse_size = glimpse_size
        self.sizes = [glimpse_size * 2**scale for scale in range(num_scales)]
        self.padding = self.sizes[-1] // 2 + 1
        self.output_size = num_scales * glimpse_size**2
        stride = image_size + 2 * self.padding
        smallest, largest = (torch.arange(size) for size in (self.sizes[0], self.sizes[-1]))
        offsets = [(rows[:, None] * stride + rows).flatten() for rows in (smallest, largest)]
        self.register_buffer("smallest_pixels", offsets[0], persistent=False)
        self.register_buffer("pixels", offsets[1], persistent=False)
        self.smallest_pixels: Int[Tensor, "X"]
        self.pixels: Int[Tensor, "X"]

    def prepare(self, images: Float[Tensor, "B Y X"]) -> Float[Tensor, "B Z"]:
        """Return the images with a margin of zeros, flat; once for all glimpses."""
        return pad(images, [self.padding] * 4).flatten(1)

    def forward(
        self, prepared: Float[Tensor, "B Z"], locations: Float[Tensor, "B 2"]
    ) -> Float[Tensor, "B G"]:
        """Return the patches of all scales, one vector for each image."""
        largest = self._cut(prepared, locations, self.sizes[-1], self.pixels)
        patches = largest.view(-1, 1, self.sizes[-1], self.sizes[-1])
        scales = []
        for size in self.sizes:
            if self._is_offset(size):
                scales.append(self._cut(prepared, locations, size, self.smallest_pixels))
                continue
            margin = (self.sizes[-1] - size) // 2
            patch = patches[..., margin : margin + size, margin : margin + size]
            factor = size // self.glimpse_size
            scales.append((avg_pool2d(patch, factor) if factor > 1 else patch).flatten(1))
        return torch.cat(scales, dim=1)

    def _cut(
        self,
        prepared: Float[Tensor, "B Z"],
        locations: Float[Tensor, "B 2"],
        size: int,
        pixels: Int[Tensor, "X"],
    ) -> Float[Tensor, "B X"]:
        corners = self.corners(locations, size) + self.padding
        stride = self.image_size + 2 * self.padding
        return prepared.gather(1, corners[:, :1] * stride + corners[:, 1:] + pixels)

    def _is_offset(self, size: int) -> bool:
        """Whether a patch of odd size has no whole number of pixels around it in the largest."""
        return (self.sizes[-1] - size) % 2 == 1

    def corners(self, locations: Float[Tensor, "*B 2"], size: int) -> Int[Tensor, "*B 2"]:
        """Return the upper left corner of a patch in pixels, which may be outside."""
        centers = (locations + 1) / 2 * self.image_size
        if self._is_offset(size):
            return (centers - size / 2).round().long()
        # The size of the largest: all of them round in the same direction.
        return (centers - self.sizes[-1] / 2).round().long() + (self.sizes[-1] - size) // 2

    def boxes(self, locations: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B K 4"]:
        """Return the box of each scale, the smallest first."""
        boxes = []
        for size in self.sizes:
            corners = self.corners(locations, size)
            boxes.append(torch.cat([corners, torch.full_like(corners, size)], dim=-1))
        return torch.stack(boxes, dim=-2).to(locations.dtype)


class WindowParameters(NamedTuple):
    """Where a grid of Gaussian filters reads an image, in pixels."""

    centers: Float[Tensor, "*B 2"]  # of the grid: row and column
    stride: Float[Tensor, "*B 1"]  # delta, between filters
    std: Float[Tensor, "*B 1"]  # sigma, of each filter
    intensity: Float[Tensor, "*B 1"]  # gamma


class GaussianWindow(nn.Module):
    """read(x) = gamma F_Y x F_X^T, with N x N Gaussian filters  (Gregor et al. 2015, eq. 21-27).

    (g_Y, g_X, log sigma^2, log delta, log gamma) = W h; center (A + 1) / 2 (g + 1), stride
    (A - 1) / (N - 1) delta, filter i at center + (i - N / 2 - 0.5) stride, for images of A x A
    pixels counted from 1. Differentiable in everything.
    """

    def __init__(self, hidden_size: int, image_size: int, window_size: int) -> None:
        super().__init__()
        self.image_size = image_size
        self.window_size = window_size
        self.projection = nn.Linear(hidden_size, 5)

    def parameters_of(self, hidden: Float[Tensor, "*B D"]) -> WindowParameters:
        """Return where the window is for a hidden state."""
        raw = self.projection(hidden)
        centers = (self.image_size + 1) / 2 * (raw[..., :2] + 1)
        log_variance, log_stride, log_intensity = raw[..., 2:].split(1, dim=-1)
        stride = (self.image_size - 1) / max(self.window_size - 1, 1) * log_stride.exp()
        return WindowParameters(centers, stride, (log_variance / 2).exp(), log_intensity.exp())

    def move(self, window: WindowParameters, location: tuple[float, float]) -> WindowParameters:
        """Return the window with its middle at a row and a column of the image, from -1 to 1."""
        centers = self.image_size / 2 * (window.centers.new_tensor(location) + 1) + 0.5
        return window._replace(centers=centers.expand_as(window.centers))

    def filters(self, window: WindowParameters) -> Float[Tensor, "*B 2 N A"]:
        """Return F_Y and F_X; each filter sums to one over the image, unless it is outside."""
        size, device = self.window_size, window.centers.device
        steps = torch.arange(1, size + 1, device=device) - size / 2 - 0.5
        means = window.centers.unsqueeze(-1) + steps * window.stride.unsqueeze(-1)  # (*B, 2, N)
        pixels = torch.arange(1, self.image_size + 1, device=device)
        distances = (pixels - means.unsqueeze(-1)) / window.std[..., None, None]
        filters = (-distances.square() / 2).exp()
        return filters / filters.sum(dim=-1, keepdim=True).clamp(min=_EPSILON)

    def forward(
        self, images: Float[Tensor, "B A A"], window: WindowParameters
    ) -> Float[Tensor, "B G"]:
        """Return the filtered window, one vector for each image."""
        rows, columns = self.filters(window).unbind(dim=-3)  # (B, N, A)
        read = rows @ images @ columns.transpose(-1, -2)
        return (window.intensity.unsqueeze(-1) * read).flatten(1)

    def boxes(self, window: WindowParameters) -> Float[Tensor, "*B 1 4"]:
        """Return the box between the outer filters, a standard deviation wider on each side."""
        side = window.stride * (self.window_size - 1) + 2 * window.std
        corners = window.centers - 0.5 - side / 2  # pixel 1 has its middle at 0.5
        return torch.cat([corners, side, side], dim=-1).unsqueeze(-2)
