"""Icons and their names, such as "airplane clock": an object and, often in a corner, a modifier.

Pairs of words are held out: the words of a dev or test name are in training names, but never two
of them together that make up its pair. Training images are shifted, and some are composites: the
modifier of one icon drawn onto another. Invariant: no training name contains both words of a pair
that is held out, composites included.
"""

import csv
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources
from itertools import chain, combinations, islice, repeat
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import max_pool2d
from typing_extensions import override

from heedful.data.images.array_files import open_array_file
from heedful.data.images.image_files import Pixels
from heedful.data.synthetic.corpus import GeneratedImage, ImageCorpus

MIN_COUNT = 5
"""Training names that contain the rarest word of a name; rarer ones are left out."""
MAX_SHIFT = 2
COMPOSITE_RATIO = 0.4
MAX_REGION = 0.4
"""The share of an image that a modifier may change."""
MIN_OVERLAP = 0.5
Mask = NDArray[np.bool_]
_OUTLINE = "outline"  # the last word of many names; the drawing style, not an object
_HALO = 3  # blank pixels around a modifier, which set it off from the icon below
_WHITE = 255
_DARK = 100


class Icon(NamedTuple):
    """A row of the table of names."""

    row: int  # of the images
    split: str
    words: tuple[str, ...]
    held_out_pair: frozenset[str]  # empty in training
    min_count: int  # training names that contain its rarest word


class Modifier(NamedTuple):
    """A word, and the ink that it adds to an icon."""

    word: str
    ink: Pixels
    halo: Mask  # ink and blank pixels around it


class IconCorpus(ImageCorpus):
    """Icons of Material Design Icons, 48 x 48; `originals` are `train` without composites."""

    name = "icons"
    description = "icons and their names; dev and test names combine words in a new way"
    splits = ("train", "originals", "dev", "test")

    @override
    def generate(
        self, split: str, num_examples: int, rng: np.random.Generator
    ) -> Iterator[GeneratedImage]:
        is_training = split in ("train", "originals")
        icons, ink = load_icons("train" if is_training else split), load_ink()
        if not is_training:
            for icon in icons[:num_examples]:
                yield GeneratedImage(_WHITE - ink[icon.row], " ".join(icon.words))
            return
        epochs = (rng.permutation(len(icons)).tolist() for _ in repeat(None))
        for row in islice(chain.from_iterable(epochs), num_examples):
            words, image = icons[row].words, ink[icons[row].row]
            if split == "train" and rng.random() < COMPOSITE_RATIO:
                words, image = load_composer().draw(rng)
            yield GeneratedImage(_WHITE - shift(image, rng), " ".join(words))


def load_icons(split: str, min_count: int = MIN_COUNT) -> list[Icon]:
    """Return the icons of a split whose words are not too rare."""
    return [icon for icon in _read_table() if icon.split == split and icon.min_count >= min_count]


@lru_cache
def _read_table() -> Sequence[Icon]:
    text = (resources.files(__package__) / "material_icons" / "names.tsv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [
        Icon(
            int(row["index"]),
            row["split"],
            tuple(row["name"].split()),
            frozenset(row["held_pair"].replace("-", "").split()),
            int(row["rarest"]),
        )
        for row in rows
    ]


@lru_cache
def load_ink() -> Pixels:
    """Return all icons, (icons, 48, 48), 255 where there is ink."""
    folder = resources.files(__package__) / "material_icons"
    with resources.as_file(folder / "icons48.npy.gz") as path:
        return open_array_file(str(path)).arrays[""]


def shift(image: Pixels, rng: np.random.Generator) -> Pixels:
    """Move an image by up to two pixels; what it leaves is blank."""
    top, left = rng.integers(2 * MAX_SHIFT + 1, size=2)
    rows, columns = image.shape
    return np.pad(image, MAX_SHIFT)[top : top + rows, left : left + columns]


# ----- composites


class IconComposer:
    """Draws the modifiers of icons onto other icons.

    A modifier is the ink of an icon, "bell clock", that the icon named without its last word,
    "bell", lacks; both outlined or both not; it must have the same shape in two icons at least. Its
    ink and a halo around it replace what is below.
    """

    def __init__(self, icons: Sequence[Icon], ink: Pixels, held_out: set[frozenset[str]]) -> None:
        self.ink = ink
        self.held_out = held_out
        by_name = {icon.words: icon for icon in icons}
        modifiers: dict[str, list[Modifier]] = {}
        bases: dict[tuple[str, ...], Icon] = {}
        for icon in icons:
            words, style = split_style(icon.words)
            base = by_name.get((*words[:-1], *style))
            if len(words) < 2 or base is None:
                continue
            is_extension, modifier = find_modifier(words[-1], ink[base.row], ink[icon.row])
            if is_extension:
                bases[base.words] = base
            if modifier is not None:
                modifiers.setdefault(words[-1], []).append(modifier)
        self.bases = list(bases.values())
        agreeing = {word: select_agreeing(inks) for word, inks in modifiers.items()}
        self.modifiers = {word: inks for word, inks in agreeing.items() if inks}
        weights = np.array([len(inks) for inks in self.modifiers.values()]) ** 0.7
        self.probabilities = weights / weights.sum()

    def draw(self, rng: np.random.Generator) -> tuple[tuple[str, ...], Pixels]:
        """Draw a random composite; its name contains no pair of words that is held out."""
        modifiers: Sequence[list[Modifier]] = list(self.modifiers.values())
        while True:
            candidates = modifiers[rng.choice(len(modifiers), p=self.probabilities)]
            modifier = candidates[rng.integers(len(candidates))]
            base = self.bases[rng.integers(len(self.bases))]
            words, style = split_style(base.words)
            name = (*words, modifier.word)
            if modifier.word in words or not self.held_out.isdisjoint(
                map(frozenset, combinations(name, 2))
            ):
                continue
            below = np.where(modifier.halo, 0, self.ink[base.row])
            return (*name, *style), np.maximum(below, modifier.ink).astype(np.uint8)


@lru_cache
def load_composer() -> IconComposer:
    """Return the composer of the training icons."""
    held_out = {icon.held_out_pair for icon in _read_table() if icon.held_out_pair}
    return IconComposer(load_icons("train"), load_ink(), held_out)


def modifier_region(name: str) -> Mask | None:
    """Return the pixels that change when the last word is added to a name; None if unknown.

    It is unknown if there is no icon without that word, or if the whole image changes.
    """
    by_name = {icon.words: icon.row for icon in _read_table()}
    words, style = split_style(tuple(name.split()))
    icon, base = by_name.get((*words, *style)), by_name.get((*words[:-1], *style))
    if icon is None or base is None:
        return None
    difference = abs(load_ink()[icon].astype(np.int16) - load_ink()[base])
    region = _dilate(difference > _DARK, 1)
    return region if 0 < region.mean() < MAX_REGION else None


def split_style(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words without a last "outline", and it."""
    is_outlined = words[-1] == _OUTLINE
    return (words[:-1], words[-1:]) if is_outlined else (words, ())


def find_modifier(word: str, base: Pixels, icon: Pixels) -> tuple[bool, Modifier | None]:
    """Return whether `icon` is `base` with something added, and what, if it stands apart."""
    difference = icon.astype(np.int16) - base
    added = difference.clip(min=0).astype(np.uint8)
    removed = (-difference).clip(min=0)
    added[added < 60] = 0
    halo = _dilate(added > _DARK, _HALO)
    kept = np.minimum(base, icon)[halo].sum(dtype=np.int64)
    elsewhere = removed[~_dilate(added > _DARK, _HALO + 2)].sum(dtype=np.int64)
    is_extension = elsewhere < 0.1 * max(1, base.sum(dtype=np.int64))
    ink = added.sum(dtype=np.int64)
    is_apart = kept < 0.35 * ink and 30 * _WHITE < ink < 500 * _WHITE
    is_apart = is_apart and (abs(difference) > _DARK).mean() < MAX_REGION
    return bool(is_extension), Modifier(word, added, halo) if is_extension and is_apart else None


def select_agreeing(modifiers: Sequence[Modifier]) -> list[Modifier]:
    """Return the modifiers whose ink has more than half of its area in common with another's.

    They are compared from the top left corner of their ink, wherever that is in the image.
    """
    shapes = np.zeros((len(modifiers), *modifiers[0].ink.shape), np.float32)
    for shape, modifier in zip(shapes, modifiers, strict=True):
        mask = modifier.ink > _DARK
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        cropped = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        shape[: cropped.shape[0], : cropped.shape[1]] = cropped
    flat = shapes.reshape(len(modifiers), -1)
    common, areas = flat @ flat.T, flat.sum(axis=1)
    overlap = common / (areas[:, None] + areas - common)
    np.fill_diagonal(overlap, 0)
    return [modifiers[int(row)] for row in np.flatnonzero(overlap.max(axis=1) > MIN_OVERLAP)]


def _dilate(mask: Mask, radius: int) -> Mask:
    """Return all pixels within a square of this radius around those of the mask."""
    pixels = torch.from_numpy(mask)[None].float()
    return max_pool2d(pixels, 2 * radius + 1, stride=1, padding=radius)[0].numpy() > 0
