"""Two colored shapes side by side or one above the other, and a sentence that describes them.

Captions such as "a small red circle left of a large blue square" name the shapes from left to right
or from top to bottom. Invariants: a caption belongs to one split, by a hash of it; the first shape
of a caption does not touch the second.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.data.images.image_files import Pixels
from heedful.data.synthetic.corpus import assign_split
from heedful.data.synthetic.image_corpus import GeneratedImage, ImageCorpus

IMAGE_SIZE = 32
COLORS = {"red": (220, 30, 30), "green": (20, 150, 40), "blue": (30, 60, 220)}
COLORS |= {"yellow": (235, 200, 20)}
FORMS = ("circle", "square", "triangle", "cross")
SIZES = {"small": 4, "large": 6}  # half of the height and width
RELATIONS = {"left of": (0, 1), "above": (1, 0)}  # rows and columns to the second shape
_JITTER = 2
_WHITE = 255


class Shape(NamedTuple):
    """Appearance of a shape."""

    size: str
    color: str
    form: str

    def describe(self) -> str:
        """Return it as a caption names it."""
        return f"a {self.size} {self.color} {self.form}"


class ShapeCorpus(ImageCorpus):
    """Pairs of shapes, 32 x 32 in color."""

    name = "shapes"
    description = "two colored shapes and where they are; dev and test captions are new"

    @override
    def generate(
        self, split: str, num_examples: int, rng: np.random.Generator
    ) -> Iterator[GeneratedImage]:
        count = 0
        while count < num_examples:
            first, second = (_random_shape(rng) for _ in range(2))
            relation = str(rng.choice(list(RELATIONS)))
            caption = f"{first.describe()} {relation} {second.describe()}"
            if assign_split(caption) == split:
                count += 1
                yield GeneratedImage(_draw(first, second, relation, rng), caption)


def _random_shape(rng: np.random.Generator) -> Shape:
    return Shape(*(str(rng.choice(list(choices))) for choices in (SIZES, COLORS, FORMS)))


def _draw(first: Shape, second: Shape, relation: str, rng: np.random.Generator) -> Pixels:
    """Draw both shapes, each somewhere near the middle of its half."""
    image = np.full((IMAGE_SIZE, IMAGE_SIZE, 3), _WHITE, np.uint8)
    direction = np.array(RELATIONS[relation])
    for shape, sign in ((first, -1), (second, 1)):
        jitter = rng.integers(-_JITTER, _JITTER + 1, size=2)
        jitter[direction == 1] = np.clip(jitter[direction == 1], -1, 1)
        row, column = IMAGE_SIZE // 2 + sign * direction * IMAGE_SIZE // 4 + jitter
        image[_mask(shape, row, column)] = COLORS[shape.color]
    return image


def _mask(shape: Shape, row: int, column: int) -> NDArray[np.bool_]:
    """Return which pixels a shape with this center covers."""
    rows, columns = np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE]
    down, right, half = rows - row, columns - column, SIZES[shape.size]
    inside = (abs(down) <= half) & (abs(right) <= half)
    if shape.form == "circle":
        return down**2 + right**2 <= half**2
    if shape.form == "triangle":
        return inside & (2 * abs(right) <= down + half)
    if shape.form == "cross":
        return inside & ((abs(down) <= half // 3) | (abs(right) <= half // 3))
    return inside
