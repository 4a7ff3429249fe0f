"""Unusual images are noted where they are decoded."""

import numpy as np
from PIL import Image

from heedful.data.images.batching import ImageShape, open_images
from heedful.data.images.image_files import ImageFiles
from heedful.tasks.captioning.images import ImageLoader

SHAPE = ImageShape(3, 8, 8)


def animation(path):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    return str(path)


def test_notes_of_a_data_set_collected_once(tmp_path):
    path, notes = animation(tmp_path / "a.gif"), []
    reader = open_images(ImageFiles(), [path], SHAPE, location="data.train", notes=notes)
    expected = [f"{path}: only the first of 2 frames or pages is read"]
    assert notes == expected
    assert reader.read(np.array([0, 0])).shape == (2, 3, 8, 8)
    assert notes == expected


def test_notes_of_requested_images_collected(tmp_path):
    path, loader = animation(tmp_path / "a.gif"), ImageLoader(SHAPE)
    loader.load(path)
    assert loader.notes == [f"{path}: only the first of 2 frames or pages is read"]
