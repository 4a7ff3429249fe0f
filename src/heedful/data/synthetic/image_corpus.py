"""Base class of generated images with captions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from heedful.data.images.image_files import Pixels
from heedful.data.synthetic.corpus import hash_text
from heedful.errors import DataError, check_choice


class GeneratedImage(NamedTuple):
    """An image and its caption."""

    pixels: Pixels  # (rows, columns), or channels behind them
    caption: str


class ImageCorpus(ABC):
    """Images with captions, deterministic by seed."""

    name: ClassVar[str]
    description: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")

    def images(self, split: str, num_examples: int, *, seed: int = 0) -> Iterator[GeneratedImage]:
        """Return images of a split; fewer if it has fewer."""
        check_choice(split, self.splits, "split", location=self.name, error=DataError)
        rng = np.random.default_rng(hash_text(f"{self.name}/{split}/{seed}"))
        return self.generate(split, num_examples, rng)

    @abstractmethod
    def generate(
        self, split: str, num_examples: int, rng: np.random.Generator
    ) -> Iterator[GeneratedImage]:
        """Generate images of a split."""
