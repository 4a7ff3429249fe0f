"""Built-in pictures of shapes."""

import re

import numpy as np
import pytest

from heedful.data.synthetic.pictures import BuiltInPicturesConfig
from heedful.data.synthetic.shapes import COLORS, COLUMNS, FORMS, ROWS, SIZES

SHAPE = rf"a ({'|'.join(SIZES)}) ({'|'.join(COLORS)}) ({'|'.join(FORMS)})"
CAPTION = re.compile(rf"{SHAPE} (left of|above) {SHAPE}")
WHITE = (255, 255, 255)


def pictures(split="train", count=300, name="shapes"):
    config = BuiltInPicturesConfig(name=name, split=split, num_examples=count)
    captions = [example.captions[0] for example in config.read()]
    return list(zip(captions, config.open_images().read(range(count)), strict=True))


@pytest.mark.parametrize("name", ["shapes", "single-shapes"])
def test_no_caption_belongs_to_two_splits(name):
    train, dev, test = (
        {caption for caption, _ in pictures(split, name=name)} for split in ("train", "dev", "test")
    )
    assert not train & dev
    assert not train & test
    assert not dev & test


def test_shapes_match_the_caption():
    for caption, pixels in pictures():
        match = CAPTION.fullmatch(caption)
        size, color, _, relation, other_size, other_color, _ = match.groups()
        ink = (pixels != WHITE).any(axis=2)
        along = ink.any(axis=0) if relation == "left of" else ink.any(axis=1)
        steps = np.flatnonzero(np.diff(along.astype(int)))
        assert len(steps) in (3, 4)  # two shapes with a gap between them
        halves = np.split(pixels, [int(steps[1]) + 1], axis=1 if relation == "left of" else 0)
        for half, (name, extent) in zip(
            halves, ((color, size), (other_color, other_size)), strict=True
        ):
            drawn = half[(half != WHITE).any(axis=2)]
            assert {tuple(pixel) for pixel in drawn.tolist()} == {COLORS[name]}
            rows = (half != WHITE).any(axis=(1, 2)).sum()
            assert rows == 2 * SIZES[extent] + 1


def test_single_shape_is_where_and_what_the_caption_says():
    pattern = re.compile(rf"{SHAPE} ({'|'.join(ROWS)}) ({'|'.join(COLUMNS)})")
    for caption, pixels in pictures(name="single-shapes"):
        size, color, _, row, column = pattern.fullmatch(caption).groups()
        ink = (pixels != WHITE).any(axis=2)
        assert {tuple(pixel) for pixel in pixels[ink].tolist()} == {COLORS[color]}
        extents = [np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0)]
        thirds = ROWS.index(row), COLUMNS.index(column)
        for extent, third in zip(extents, thirds, strict=True):
            first, last = extent[[0, -1]]
            assert last - first == 2 * SIZES[size]  # none of it is outside
            assert np.digitize((first + last) / 2, [12.5, 19.5]) == third
