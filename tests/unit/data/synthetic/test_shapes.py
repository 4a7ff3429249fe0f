"""Built-in images of shapes."""

import re

import numpy as np

from heedful.data.synthetic.images import BuiltInImagesConfig
from heedful.data.synthetic.shapes import COLORS, FORMS, SIZES

SHAPE = rf"a ({'|'.join(SIZES)}) ({'|'.join(COLORS)}) ({'|'.join(FORMS)})"
CAPTION = re.compile(rf"{SHAPE} (left of|above) {SHAPE}")
WHITE = (255, 255, 255)


def config(split="train", count=120):
    return BuiltInImagesConfig(name="shapes", split=split, num_examples=count)


def captions(config):
    return [example.captions[0] for example in config.read()]


def test_no_caption_belongs_to_two_splits():
    train, dev, test = (set(captions(config(split))) for split in ("train", "dev", "test"))
    assert not train & dev
    assert not train & test
    assert not dev & test


def test_shapes_match_the_caption():
    images = config().open_images().read(range(120))
    for caption, pixels in zip(captions(config()), images, strict=True):
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
