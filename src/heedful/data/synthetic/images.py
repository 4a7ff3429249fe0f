"""Built-in images with captions: icons and their names, formulas and their LaTeX, shapes.

Icons and formulas are black on white. Invariants: the same name, split and seed give the same
images; no test or dev image is a training image.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from heedful.data.images.captions import CaptionedImage
from heedful.data.images.image_files import ImageArray, Pixels
from heedful.data.sources import SyntheticConfig
from heedful.data.synthetic.formulas import FormulaCorpus
from heedful.data.synthetic.icons import IconCorpus
from heedful.data.synthetic.image_corpus import ImageCorpus
from heedful.data.synthetic.shapes import ShapeCorpus
from heedful.errors import DataError, check_choice, format_count


def image_corpora() -> dict[str, ImageCorpus]:
    """Return the corpora by name."""
    return {corpus.name: corpus for corpus in (IconCorpus(), FormulaCorpus(), ShapeCorpus())}


class BuiltInImagesConfig(SyntheticConfig):
    """Images with captions that come with heedful, or that it draws."""

    default_sizes: ClassVar[Mapping[str, int]] = {"train": 10_000, "dev": 500, "test": 500}
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

    @override
    def describe(self) -> str:
        size = format_count(self.num_examples, "picture")
        return f"built-in {self.name}, {self.split}, {size}, seed {self.seed}"

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
