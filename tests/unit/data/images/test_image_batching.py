"""Images as model inputs, and batches of captions with their images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.data.images import batching as image_batching
from heedful.data.images.batching import (
    ArrayReader,
    CaptionDataset,
    DecodedFeatures,
    ImageDecoder,
    ImageShape,
    collate_images,
    open_images,
)
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import ImageArray, ImageFiles, resize_image
from heedful.data.text.batching import Batch, SourceBatch
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.errors import ConfigError
from heedful.tasks.captioning.images import ImageLoader
from heedful.tokenization.ragged_array import RaggedArray
from tests.captioning import write_features, write_images

SHEET = ImageArray(np.arange(5 * 4 * 6, dtype=np.uint8).reshape(5, 4, 6), None, "sheet")
FEATURES = ImageShape(6, 2, 2, fit=None)


def test_images_decoded_once_or_for_each_batch(monkeypatch):
    shape = ImageShape(1, 2, 3)
    loaded = open_images(SHEET, [4, 0, 2], shape, location="data.train")
    monkeypatch.setattr(image_batching, "MAX_LOADED_BYTES", 0)
    decoded = open_images(SHEET, [4, 0, 2], shape, location="data.train")
    assert (type(loaded), type(decoded)) == (ArrayReader, ImageDecoder)
    rows = np.array([2, 0, 2])
    assert len(loaded) == len(decoded) == 3
    np.testing.assert_array_equal(loaded.read(rows), decoded.read(rows))
    expected = resize_image(SHEET.read([2], "L")[0], 2, 3, "pad")
    np.testing.assert_array_equal(decoded.read(rows)[0, 0], expected[:, :, 0])


def test_image_files_are_channels_first_in_color(tmp_path):
    path = write_images(tmp_path)
    names = [str(path.parent / f"{index}.png") for index in range(3)]
    reader = open_images(ImageFiles(), names, ImageShape(3, 5, 4), location="data.train")
    pixels = reader.read(np.array([0, 1, 2]))
    assert pixels.shape == (3, 3, 5, 4)
    assert pixels[:, :, 2, 2].tolist() == [[255, 0, 0], [0, 160, 0], [0, 0, 255]]


@pytest.mark.parametrize("bits", [4, 8, 32])
def test_features_load_as_they_are_stored(bits, tmp_path):
    setting = write_features(tmp_path, bits=bits)
    features = ImageFeatures.open(setting["features"], setting.get("features_scale"))
    reader = open_images(features, [3, 1], FEATURES, location="data.train", scale=features.scale)
    stored = np.load(setting["features"])
    np.testing.assert_array_equal(reader.read(np.array([1, 0])), stored[[1, 3]])


def test_codes_of_another_scale_decoded(tmp_path):
    setting = write_features(tmp_path)
    features = ImageFeatures.open(setting["features"], setting["features_scale"])
    assert features.scale is not None
    for scale in (None, features.scale + 1):
        reader = open_images(features, [3, 1], FEATURES, location="data.dev", scale=scale)
        assert isinstance(reader, DecodedFeatures)
        np.testing.assert_array_equal(reader.read(np.array([0])), features.read([3]))


def test_features_of_another_shape_raise(tmp_path):
    setting = write_features(tmp_path)
    features = ImageFeatures.open(setting["features"], setting["features_scale"])
    for shape in (
        ImageShape(5, 2, 2, fit=None),
        ImageShape(6, 1, 4, fit=None),
        ImageShape(3, 2, 2),
    ):
        with pytest.raises(ConfigError):
            open_images(features, [0], shape, location="data.train")


def caption_dataset(pixel=0):
    images = np.full((2, 1, 2, 2), pixel, np.uint8)
    images[1] += 1
    captions = InMemoryPairDataset(
        RaggedArray.from_sequences([[1], [0], [1]]), RaggedArray.from_sequences([[4], [5], [6]])
    )
    return CaptionDataset(captions, ArrayReader(images, np.arange(2)), num_cells=4)


def test_images_replace_indices():
    dataset = caption_dataset()
    ids = torch.tensor([[1, 3], [0, 3]])
    targets = torch.tensor([[4, 3], [5, 3]])
    batch = dataset.add_images(Batch(SourceBatch(ids, torch.tensor([2, 2])), targets, targets))
    assert batch.sources.tokens[:, 0, 0, 0].tolist() == [1, 0]
    assert batch.sources.lengths.tolist() == [4, 4]
    assert batch.reference_ids.tolist() == [1, 0]
    assert batch.num_tokens == 8 + 4
    assert batch.num_positions == 8 + 4


def test_fingerprint_depends_on_captions_and_images():
    assert caption_dataset().fingerprint() == caption_dataset().fingerprint()
    assert caption_dataset().fingerprint() != caption_dataset(pixel=1).fingerprint()
    dataset, targets = caption_dataset(), RaggedArray.from_sequences([[4], [5], [7]])
    changed = InMemoryPairDataset(dataset.captions.source, targets)
    assert dataset.fingerprint() != replace(dataset, captions=changed).fingerprint()


def test_collated_images_keep_type():
    for dtype in (np.uint8, np.float16, np.float32):
        sources = collate_images(np.zeros((2, 3, 4), dtype), 3)
        assert sources.tokens.numpy().dtype == dtype
        assert sources.lengths.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (
            ImageShape(3, 48, 64),
            "images are resized to 48 x 64 pixels; those of another aspect ratio get a white "
            "border (model.encoder.fit)",
        ),
        (FEATURES, ""),
    ],
)
def test_images_lose_nothing_by_default_and_the_fit_is_described(shape, line):
    assert shape.describe_fit() == line


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
