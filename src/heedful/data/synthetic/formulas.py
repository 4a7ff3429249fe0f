r"""Formulas as images and as LaTeX, drawn by matplotlib's mathtext (the extra `plot`).

A formula is one to three terms with fractions, roots, exponents and indices. Its caption is LaTeX
with spaces between tokens: `\frac { x ^ { 2 } } { 3 }`. Invariants: different captions have
different images, since braces are always written and an index comes before an exponent; a
formula belongs to one split, by a hash of its caption.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from heedful.data.images.image_files import MissingExtraError, Pixels
from heedful.data.synthetic.corpus import assign_split
from heedful.data.synthetic.image_corpus import GeneratedImage, ImageCorpus
from heedful.errors import DataError
from heedful.parallel import available_cores, fixed_size_chunks, worker_pool

IMAGE_SIZE = (32, 96)
FONT_SIZE = 13  # pixels, since mathtext draws 72 dots per inch
TOKEN_RANGE = range(3, 21)
LONG_TOKEN_RANGE = range(21, 31)
DIGITS = tuple("0123456789")
LETTERS = tuple("abckmnpqrtuvwxyz")
GREEK = (r"\alpha", r"\beta", r"\gamma", r"\theta", r"\lambda", r"\pi")
_MARGIN = 2
_CHUNK_SIZE = 64
_WHITE = 255


class FormulaCorpus(ImageCorpus):
    """Formulas of 3 to 20 tokens, 32 x 96; those of the split `long` have 21 to 30."""

    name = "formulas"
    description = "formulas drawn by matplotlib, and their LaTeX"
    splits = ("train", "dev", "test", "long")

    @override
    def generate(
        self, split: str, num_examples: int, rng: np.random.Generator
    ) -> Iterator[GeneratedImage]:
        chunks = fixed_size_chunks(_captions(split, rng), max_size=_CHUNK_SIZE)
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
    height, width = IMAGE_SIZE
    rows, columns = drawing.shape
    if rows > height or columns > width - 2 * _MARGIN:
        return None
    image = np.full(IMAGE_SIZE, _WHITE, np.uint8)
    top = (height - rows) // 2
    image[top : top + rows, _MARGIN : _MARGIN + columns] = drawing
    return image
