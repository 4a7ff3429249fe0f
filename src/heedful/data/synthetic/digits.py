"""Built-in digits: drawn with strokes that are bent, turned and shifted at random.

They replace MNIST where there are no files: in small recipes and in tests. Invariant: the same
split, seed and index give the same image.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.data.images.labeled_images import LabeledImage
from heedful.data.sources import SyntheticConfig
from heedful.data.synthetic.corpus import hash_text
from heedful.errors import DataError, check_choice

Points = NDArray[np.float64]
_NAME = "digits"
_SPLITS = ("train", "dev", "test")


def _ellipse(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    angles = [2 * math.pi * step / 10 for step in range(11)]
    return [(x + width * math.sin(angle), y - height * math.cos(angle)) for angle in angles]


STROKES: dict[int, list[list[tuple[float, float]]]] = {
    0: [_ellipse(0.5, 0.5, 0.26, 0.38)],
    1: [[(0.36, 0.27), (0.54, 0.12), (0.54, 0.5), (0.54, 0.88)]],
    2: [
        [(0.26, 0.3), (0.36, 0.14), (0.6, 0.12), (0.72, 0.28), (0.64, 0.46), (0.26, 0.87)],
        [(0.26, 0.87), (0.76, 0.87)],
    ],
    3: [
        [(0.27, 0.17), (0.5, 0.11), (0.68, 0.2), (0.66, 0.38), (0.44, 0.48)],
        [(0.44, 0.48), (0.7, 0.56), (0.74, 0.74), (0.56, 0.88), (0.26, 0.84)],
    ],
    4: [[(0.58, 0.1), (0.22, 0.6), (0.8, 0.6)], [(0.62, 0.38), (0.62, 0.92)]],
    5: [
        [(0.72, 0.12), (0.34, 0.12), (0.29, 0.45)],
        [(0.29, 0.45), (0.56, 0.4), (0.74, 0.56), (0.7, 0.78), (0.5, 0.89), (0.26, 0.83)],
    ],
    6: [
        [(0.64, 0.1), (0.38, 0.34), (0.28, 0.66), (0.4, 0.87), (0.62, 0.86), (0.72, 0.68)],
        [(0.72, 0.68), (0.58, 0.52), (0.38, 0.55), (0.29, 0.66)],
    ],
    7: [[(0.24, 0.13), (0.76, 0.13), (0.56, 0.48), (0.44, 0.9)]],
    8: [_ellipse(0.5, 0.3, 0.18, 0.19), _ellipse(0.5, 0.69, 0.23, 0.2)],
    9: [_ellipse(0.5, 0.33, 0.2, 0.21), [(0.7, 0.33), (0.66, 0.62), (0.56, 0.9)]],
}
"""Polylines in a unit square, x to the right and y downwards."""
NUM_CLASSES = len(STROKES)


def draw_digit(digit: int, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a digit with random shape, slant, size, place and thickness, (size, size)."""
    angle, shear, stretch = rng.uniform([-0.25, -0.25, 0.85], [0.25, 0.25, 1.15])
    scale, thickness = rng.uniform([0.75, 0.035], [0.95, 0.065])
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    affine = scale * turn @ np.array([[stretch, 0], [shear, 1 / stretch]])
    shift = rng.uniform(-0.06, 0.06, 2)
    strokes = [np.array(stroke) for stroke in STROKES[digit]]
    bent = [stroke + rng.normal(0, 0.018, stroke.shape) for stroke in strokes]
    moved = [size * ((stroke - 0.5) @ affine + 0.5 + shift) for stroke in bent]
    starts = np.concatenate([stroke[:-1] for stroke in moved])
    ends = np.concatenate([stroke[1:] for stroke in moved])
    rows, columns = np.mgrid[:size, :size] + 0.5
    pixels = np.stack([columns.ravel(), rows.ravel()], axis=1)
    distances = _distances(pixels, starts, ends).min(axis=1)
    ink = np.clip(thickness * size + 0.5 - distances, 0, 1)
    return (255 * ink).round().astype(np.uint8).reshape(size, size)


def _distances(pixels: Points, starts: Points, ends: Points) -> Points:
    """Return the distance of each pixel from each line segment, (pixels, segments)."""
    directions = ends - starts
    lengths = np.maximum((directions**2).sum(axis=1), 1e-12)  # squared
    along = pixels @ directions.T - (starts * directions).sum(axis=1)
    fractions = np.clip(along / lengths, 0, 1)
    squares = (pixels**2).sum(axis=1)[:, None] - 2 * pixels @ starts.T + (starts**2).sum(axis=1)
    squares += fractions * (fractions * lengths - 2 * along)
    return np.sqrt(np.maximum(squares, 0))


class BuiltInDigitsConfig(SyntheticConfig):
    """Digits that heedful draws."""

    default_sizes: ClassVar[Mapping[str, int]] = {"train": 4000, "dev": 500, "test": 500}
    unit = "image"
    type: Literal["built-in-digits"] = "built-in-digits"
    name: str = _NAME
    """Name of the data: digits."""
    num_examples: PositiveInt = 1000
    """Number of images."""
    size: int = Field(default=28, ge=8, le=512)
    """Height and width of an image in pixels."""

    @override
    @classmethod
    def corpus_names(cls) -> Sequence[str]:
        return (_NAME,)

    @override
    def stream(self) -> Iterator[LabeledImage]:
        check_choice(self.name, (_NAME,), "built-in images", location="data", error=DataError)
        check_choice(self.split, _SPLITS, "split", location=self.name, error=DataError)
        for index in range(self.num_examples):
            rng = np.random.default_rng(hash_text(f"{self.split}/{self.seed}/{index}"))
            label = int(rng.integers(NUM_CLASSES))
            yield LabeledImage(draw_digit(label, self.size, rng), label)
