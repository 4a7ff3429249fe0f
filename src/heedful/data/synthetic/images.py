"""Built-in images with captions: icons and their names, formulas and their LaTeX, shapes.

Icons (`icons`) and formulas are black on white; formulas are drawn by matplotlib's mathtext (the
extra `plot`). Invariants: the same name, split and seed give the same images; no test or dev image
is a training image: a caption of shapes or a formula belongs to one split, by a hash of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.data.images.captions import CaptionedImage
from heedful.data.images.image_files import ImageArray, MissingExtraError, Pixels
from heedful.data.sources import SyntheticConfig
from heedful.data.synthetic.corpus import GeneratedImage, ImageCorpus, assign_split
from heedful.data.synthetic.icons import IconCorpus
from heedful.errors import DataError, check_choice
from heedful.parallel import available_cores, worker_pool


def image_corpora() -> dict[str, ImageCorpus]:
    """Return the corpora by name."""
    return {corpus.name: corpus for corpus in (IconCorpus(), FormulaCorpus(), ShapeCorpus())}


class BuiltInImagesConfig(SyntheticConfig):
    """Images with captions that come with heedful, or that it draws."""

    default_sizes: ClassVar[Mapping[str, int]] = {"train": 10_000, "dev": 500, "test": 500}
    unit = "picture"
    type: Literal["built-in-pictures"] = "built-in-pictures"

    @override
    @classmethod
    def corpus_names(cls) -> Sequence[str]:
        return list(image_corpora())

    @override
    def stream(self) -> Iterator[CaptionedImage]:
        captions = self._generate()[1]
        return (CaptionedImage(row, (caption,)) for row, caption in enumerate(captions))

    def open_images(self) -> ImageArray:
        """Return the store that the images of the examples are read from."""
        return ImageArray(self._generate()[0], None, self.describe())

    def _generate(self) -> tuple[Pixels, tuple[str, ...]]:
        return generate_images(self.name, self.split, self.num_examples, self.seed)


@lru_cache(maxsize=3)  # examples and images are read one after the other
def generate_images(
    name: str, split: str, num_examples: int, seed: int
) -> tuple[Pixels, tuple[str, ...]]:
    """Return images in one array and their captions; fewer if a split has fewer."""
    corpora = image_corpora()
    check_choice(name, corpora, "set of built-in images", location="data", error=DataError)
    pixels, captions = zip(*corpora[name].images(split, num_examples, seed=seed), strict=True)
    return np.stack(pixels), captions


# ----- shapes

SHAPES_SIZE = 32
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
    """Two shapes that do not touch, 32 x 32 in color, side by side or one above the other.

    A caption such as "a small red circle left of a large blue square" names them from left to right
    or from top to bottom.
    """

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
    image = np.full((SHAPES_SIZE, SHAPES_SIZE, 3), _WHITE, np.uint8)
    direction = np.array(RELATIONS[relation])
    for shape, sign in ((first, -1), (second, 1)):
        jitter = rng.integers(-_JITTER, _JITTER + 1, size=2)
        jitter[direction == 1] = np.clip(jitter[direction == 1], -1, 1)
        row, column = SHAPES_SIZE // 2 + sign * direction * SHAPES_SIZE // 4 + jitter
        image[_mask(shape, row, column)] = COLORS[shape.color]
    return image


def _mask(shape: Shape, row: int, column: int) -> NDArray[np.bool_]:
    """Return which pixels a shape with this center covers."""
    rows, columns = np.mgrid[:SHAPES_SIZE, :SHAPES_SIZE]
    down, right, half = rows - row, columns - column, SIZES[shape.size]
    inside = (abs(down) <= half) & (abs(right) <= half)
    if shape.form == "circle":
        return down**2 + right**2 <= half**2
    if shape.form == "triangle":
        return inside & (2 * abs(right) <= down + half)
    if shape.form == "cross":
        return inside & ((abs(down) <= half // 3) | (abs(right) <= half // 3))
    return inside


# ----- formulas

FORMULA_SIZE = (32, 96)
FONT_SIZE = 13  # pixels, since mathtext draws 72 dots per inch
TOKEN_RANGE = range(3, 21)
LONG_TOKEN_RANGE = range(21, 31)
DIGITS = tuple("0123456789")
LETTERS = tuple("abckmnpqrtuvwxyz")
GREEK = (r"\alpha", r"\beta", r"\gamma", r"\theta", r"\lambda", r"\pi")
_MARGIN = 2
_CHUNK_SIZE = 64


class FormulaCorpus(ImageCorpus):
    r"""Formulas of 3 to 20 tokens, 32 x 96; those of the split `long` have 21 to 30.

    A caption is LaTeX with spaces between tokens: `\frac { x ^ { 2 } } { 3 }`. Different captions
    have different images: braces are always written, and an index comes before an exponent.
    """

    name = "formulas"
    description = "formulas drawn by matplotlib, and their LaTeX"
    splits = ("train", "dev", "test", "long")

    @override
    def generate(
        self, split: str, num_examples: int, rng: np.random.Generator
    ) -> Iterator[GeneratedImage]:
        captions = _captions(split, rng)
        chunks = iter(lambda: list(islice(captions, _CHUNK_SIZE)), [])
        num_workers = max(1, min(available_cores(), num_examples // (4 * _CHUNK_SIZE)))
        with worker_pool(RenderingJob(), num_workers=num_workers) as render:
            rendered = (image for chunk in render(chunks) for image in chunk)
            yield from islice(filter(None, rendered), num_examples)


def _captions(split: str, rng: np.random.Generator) -> Iterator[str]:
    """Yield different formulas of a split without end."""
    grammar = FormulaGrammar(rng)
    seen: set[str] = set()
    token_range = LONG_TOKEN_RANGE if split == "long" else TOKEN_RANGE
    while True:
        tokens = grammar.formula()
        caption = " ".join(tokens)
        is_in_split = split == "long" or assign_split(caption) == split
        if len(tokens) in token_range and is_in_split and caption not in seen:
            seen.add(caption)
            yield caption


class FormulaGrammar:
    """Draws formulas as lists of tokens."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def formula(self) -> list[str]:
        """Draw one to three terms, joined by + and - and at most one =."""
        tokens = self.term()
        for _ in range(self._choose((0, 1, 1, 2))):
            tokens = [*tokens, self._choose("+-" if "=" in tokens else "+-="), *self.term()]
        return tokens

    def term(self) -> list[str]:
        """Draw an atom, a product, a variable with scripts, a fraction or a root."""
        draw = self._choose((self.atom, self.product, self.scripted, self.fraction, self.root))
        return draw()

    def atom(self) -> list[str]:
        """Draw a letter, a digit or a Greek letter."""
        return [self._choose(self._choose((LETTERS, LETTERS, DIGITS, DIGITS, GREEK)))]

    def variable(self) -> list[str]:
        """Draw a letter."""
        return [self._choose(self._choose((LETTERS, LETTERS, LETTERS, GREEK)))]

    def product(self) -> list[str]:
        """Draw a number times a variable."""
        return [self._choose(DIGITS[2:]), *self.variable()]

    def scripted(self) -> list[str]:
        """Draw a variable with an index, an exponent, or both."""
        scripts = self._choose(("^", "^", "_", "_", "_^"))
        tokens = self.variable()
        for script in scripts:
            tokens += [script, "{", *self.script(), "}"]
        return tokens

    def script(self) -> list[str]:
        """Draw an atom, at times with a digit added or subtracted."""
        is_sum = self.rng.random() < 0.2
        return [*self.atom(), *([self._choose("+-"), self._choose(DIGITS)] if is_sum else ())]

    def fraction(self) -> list[str]:
        """Draw a fraction."""
        return [r"\frac", "{", *self.operand(), "}", "{", *self.operand(), "}"]

    def root(self) -> list[str]:
        """Draw a square root."""
        return [r"\sqrt", "{", *self.operand(), "}"]

    def operand(self) -> list[str]:
        """Sample the content of a fraction or a root."""
        choice = self.rng.random()
        if choice < 0.5:
            return self.atom()
        if choice < 0.8:
            return [*self.atom(), self._choose("+-"), *self.atom()]
        return self.scripted()

    def _choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]


# ----- drawing


class RenderingJob(NamedTuple):
    """Draws formulas, for worker processes."""

    def setup(self, *, is_shared: bool) -> Callable[[Sequence[str]], list[GeneratedImage | None]]:
        """Import its dependencies."""
        del is_shared
        load_mathtext()
        return self.render

    def render(self, captions: Sequence[str]) -> list[GeneratedImage | None]:
        """Return images of formulas; None for those that do not fit."""
        images = ((pad_formula(draw_formula(caption)), caption) for caption in captions)
        return [
            None if pixels is None else GeneratedImage(pixels, caption)
            for pixels, caption in images
        ]


@lru_cache
def load_mathtext() -> tuple[Any, Any]:
    """Return matplotlib's parser of formulas, and its font."""
    try:
        mathtext, fonts = map(import_module, ("matplotlib.mathtext", "matplotlib.font_manager"))
    except ImportError:
        message = "drawing formulas needs the package matplotlib"
        hint = "install it with: pip install 'heedful[plot]'"
        raise MissingExtraError("built-in formulas", message, hint) from None
    parser = mathtext.MathTextParser("agg")
    return parser, fonts.FontProperties(size=FONT_SIZE, math_fontfamily="cm")


def draw_formula(caption: str) -> Pixels:
    """Draw LaTeX, fractions in display style; black on white, as large as the formula is."""
    parser, font = load_mathtext()
    tokens = caption.replace(r"\frac", r"\dfrac").split()  # no spaces: they would detach scripts
    source = "".join(f"{token} " if token[1:].isalpha() else token for token in tokens)
    try:
        image = parser.parse(f"${source}$", dpi=72, prop=font).image
    except ValueError as error:
        reason = str(error).strip().splitlines()[-1]
        message = f"matplotlib cannot draw it: {reason}"
        raise DataError(repr(caption), message, "write LaTeX that mathtext knows") from None
    return _WHITE - np.asarray(image, dtype=np.uint8)


def pad_formula(drawing: Pixels) -> Pixels | None:
    """Return a drawing at the left of an image, in the middle of its height, if it fits."""
    height, width = FORMULA_SIZE
    rows, columns = drawing.shape
    if rows > height or columns > width - 2 * _MARGIN:
        return None
    image = np.full(FORMULA_SIZE, _WHITE, np.uint8)
    top = (height - rows) // 2
    image[top : top + rows, _MARGIN : _MARGIN + columns] = drawing
    return image
