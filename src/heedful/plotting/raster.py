"""Images as pixels: resizing, attention blended into them, PNG, and half blocks in a terminal.

Pixels are uint8 (rows, columns, RGB); nothing here needs Pillow. Invariant: where attention is zero
an image is gray and faded into the background, where it is largest the image has its own colors,
tinted with the color of a full cell; in between it is their mixture.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from rich.color import Color
from rich.style import Style
from rich.text import Text

from heedful.errors import DataError, check
from heedful.plotting.svg import LIGHT, Palette

if TYPE_CHECKING:
    from heedful.shapes import Float, Int  # at run time it would import torch

FADED = 0.35
"""How much of its gray an image keeps where nothing attends to it."""
TINT = 0.25
"""How much of the color of a full cell an image gets where attention is largest."""

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as Pillow's mode "L"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_COLOR_TYPES = {1: 0, 2: 4, 3: 2}  # by channels: gray, gray with alpha, RGB
UPPER_HALF_BLOCK = "\u2580"


def to_rgb(image: Int[np.ndarray, "rows columns *channels"]) -> Int[np.ndarray, "rows columns 3"]:
    """Return a gray or color image as RGB."""
    shape = image.shape
    is_image = image.ndim == 2 or (image.ndim == 3 and shape[2] in {1, 3})
    message = f"an image must be uint8 pixels, but is {image.dtype} of shape {shape}"
    hint = "give an array (height, width), (height, width, 1) or (height, width, 3) of 0 to 255"
    check(
        is_image and image.dtype == np.uint8 and image.size > 0, "image", message, hint, DataError
    )
    channels = image.reshape(*shape[:2], -1)
    return np.repeat(channels, 3 // channels.shape[2], axis=2)


def to_gray(rgb: Int[np.ndarray, "rows columns 3"]) -> Int[np.ndarray, "rows columns"]:
    """Return the luma of each pixel."""
    return (rgb @ _LUMA).round().astype(np.uint8)


def resize(
    values: Float[np.ndarray, "rows columns *channels"], height: int, width: int
) -> Float[np.ndarray, "height width *channels"]:
    """Interpolate linearly between the centers of cells or pixels; average where it gets smaller.

    The same as `torch.nn.functional.interpolate` with `mode="bilinear", antialias=True`.
    """
    vertical, horizontal = (
        _interpolation(size, length)
        for size, length in zip((height, width), values.shape, strict=False)
    )
    return np.einsum("yr,xc,rc...->yx...", vertical, horizontal, values, optimize=True)


def _interpolation(size: int, length: int) -> Float[np.ndarray, "size length"]:
    """Return the matrix that resizes `length` values to `size`; each row sums to one."""
    scale = length / size
    centers = (np.arange(size) + 0.5) * scale
    distances = np.abs(centers[:, None] - (np.arange(length) + 0.5))
    weights = np.maximum(0, 1 - distances / max(scale, 1))
    return weights / weights.sum(axis=1, keepdims=True)


def repeat_cells(
    values: Float[np.ndarray, "rows columns *channels"], height: int, width: int
) -> Float[np.ndarray, "height width *channels"]:
    """Give each pixel the value of the cell it lies in."""
    rows, columns = (
        ((np.arange(size) + 0.5) * length / size).astype(int)
        for size, length in zip((height, width), values.shape, strict=False)
    )
    return values[rows][:, columns]


def fit_size(height: int, width: int, *, max_height: float, max_width: float) -> tuple[int, int]:
    """Return the largest size of the same proportions within the bounds, at least one pixel."""
    scale = min(max_height / height, max_width / width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def shrink(
    rgb: Int[np.ndarray, "rows columns 3"], max_side: int
) -> Int[np.ndarray, "height width 3"]:
    """Return an image with no side longer than `max_side`."""
    height, width = rgb.shape[:2]
    if max(height, width) <= max_side:
        return rgb
    size = fit_size(height, width, max_height=max_side, max_width=max_side)
    return to_pixels(resize(rgb, *size))


def to_pixels(values: Float[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """Round to 0 to 255."""
    return values.round().clip(0, 255).astype(np.uint8)


def hex_to_rgb(color: str) -> Float[np.ndarray, "3"]:
    """Return the channels of a color such as "#1e2a80"."""
    return np.array(list(bytes.fromhex(color[1:])), dtype=np.float64)


def blend_attention(
    rgb: Int[np.ndarray, "rows columns 3"],
    strength: Float[np.ndarray, "rows columns"],
    palette: Palette = LIGHT,
) -> Int[np.ndarray, "rows columns 3"]:
    """Return an image with its colors where `strength` is one, faded where it is zero."""
    background, full = hex_to_rgb(palette.background), hex_to_rgb(palette.full_cell)
    faded = background + FADED * (to_gray(rgb)[..., None] - background)
    attended = rgb + TINT * (full - rgb)
    return to_pixels(faded + strength[..., None] * (attended - faded))


def encode_png(pixels: Int[np.ndarray, "rows columns *channels"]) -> bytes:
    """Return a PNG file of gray, gray with alpha or RGB pixels."""
    rows, columns = pixels.shape[:2]
    channels = pixels.reshape(rows, columns, -1)
    header = struct.pack(">IIBBBBB", columns, rows, 8, _PNG_COLOR_TYPES[channels.shape[2]], 0, 0, 0)
    # Filter 2: each byte minus the one above it, which compresses better than plain bytes.
    above = np.vstack([np.zeros_like(channels[:1]), channels[:-1]])
    differences = (channels - above).reshape(rows, -1)
    lines = np.hstack([np.full((rows, 1), 2, dtype=np.uint8), differences])
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return _PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def to_data_uri(pixels: Int[np.ndarray, "rows columns *channels"]) -> str:
    """Return pixels as the address of a PNG image that is contained in it."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


def half_blocks(rgb: Int[np.ndarray, "rows columns 3"]) -> list[Text]:
    """Return a line of terminal characters for every two rows of pixels."""
    rows = rgb.tolist()
    lines = []
    for upper in range(0, len(rows), 2):
        line = Text(no_wrap=True, overflow="ignore")
        lower_row = rows[upper + 1] if upper + 1 < len(rows) else [None] * len(rows[upper])
        for above, below in zip(rows[upper], lower_row, strict=True):
            background = Color.from_rgb(*below) if below else None
            line.append(UPPER_HALF_BLOCK, Style(color=Color.from_rgb(*above), bgcolor=background))
        lines.append(line)
    return lines
