"""Features of images in a file equal those of the network; broken images are all listed."""

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.data.images.captions import CaptionFileConfig
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import FileListError, ImageFiles, load_pixels
from heedful.errors import DataError
from heedful.models.efficientnet import EfficientNetLite0
from heedful.models.feature_extraction import ExtractionOptions, extract_features, list_images

SMALL = ExtractionOptions(height=64, width=64, batch_size=2, bits=32)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return EfficientNetLite0("block-10").eval()


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for index, name in enumerate(["b.png", "a.jpg", "d.gif", "c.webp", "e.png"]):
        pixels = rng.integers(0, 256, (40 + 9 * index, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


def test_features_are_those_of_the_network(tmp_path, images, network):
    files = list_images([str(images)])
    assert [file.rpartition("/")[2] for file in files] == [
        *("a.jpg", "b.png", "c.webp", "d.gif", "e.png")
    ]
    output = extract_features(files, tmp_path / "f.safetensors", network, SMALL)
    assert (output.num_images, output.grid, output.num_channels) == (5, (4, 4), 112)
    features = ImageFeatures.open(str(tmp_path / "f.safetensors"))
    assert features.images == tuple(files)
    assert features.metadata["encoder"] == "efficientnet-lite0/block-10"
    pixels = torch.from_numpy(load_pixels(ImageFiles(), files, 64, 64))
    with torch.inference_mode():
        expected = network(pixels).flatten(2).transpose(1, 2)
    np.testing.assert_allclose(features.read(range(5)), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("batch_size", [1, 3, 99])
def test_features_do_not_depend_on_the_batch(tmp_path, images, network, batch_size):
    files = list_images([str(images)])
    extract_features(files, tmp_path / "a.npy", network, SMALL)
    other = SMALL._replace(batch_size=batch_size)
    extract_features(files, tmp_path / "b.npy", network, other)
    one, two = (ImageFeatures.open(str(tmp_path / name)) for name in ("a.npy", "b.npy"))
    np.testing.assert_allclose(one.read(range(5)), two.read(range(5)), rtol=1e-3, atol=1e-4)


def test_captions_find_the_features_of_images(tmp_path, images, network):
    extract_features(list_images([str(images)]), tmp_path / "f.safetensors", network, SMALL)
    (tmp_path / "c.tsv").write_text("e.png\tlast\na\tfirst\n")
    source = CaptionFileConfig(
        path=str(tmp_path / "c.tsv"), features=str(tmp_path / "f.safetensors")
    )
    assert source.read() == [(4, ("last",)), (0, ("first",))]


def test_all_broken_images_listed_before_writing(tmp_path, images, network):
    (images / "f.png").write_bytes(b"")
    (images / "0.jpg").write_text("hello")
    files = list_images([str(images)])
    with pytest.raises(FileListError) as error:
        extract_features(files, tmp_path / "f.npy", network, SMALL)
    assert str(error.value) == (
        "2 of 7 images: cannot be read\n"
        f"  {images}/0.jpg: not an image but text\n"
        f"  {images}/f.png: the file is empty\n"
        "  replace or remove them, or leave them out with --skip-broken"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_broken_images_may_be_skipped(tmp_path, images, network):
    (images / "0.jpg").write_text("hello")
    files = list_images([str(images)])
    options = SMALL._replace(skip_broken=True)
    output = extract_features(files, tmp_path / "f.npy", network, options)
    assert output.num_images == 5
    assert output.problems == (f"{images}/0.jpg: not an image but text",)
    features = ImageFeatures.open(str(tmp_path / "f.npy"))
    assert features.images == tuple(files[1:])
    with pytest.raises(FileListError, match="1 of 1 image: cannot be read"):
        extract_features(files[:1], tmp_path / "g.npy", network, options)


def test_notes_of_images_returned(tmp_path, network):
    frames = [Image.new("RGB", (50, 50), color) for color in ("red", "blue")]
    path = tmp_path / "a.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    output = extract_features([str(path)], tmp_path / "f.npy", network, SMALL)
    assert output.notes == (f"{path}: only the first of 2 frames or pages is read",)


def test_names_that_are_no_images(tmp_path, images):
    with pytest.raises(FileListError) as error:
        list_images(["x.png", str(images), "y.png"])
    assert str(error.value) == "2 images: no such files\n  x.png\n  y.png\n  check the paths"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as error:
        list_images([str(tmp_path / "empty")])
    assert str(error.value) == (
        f"{tmp_path}/empty: contains no images\n  name a folder with images, or the images"
    )
    twice = [str(images), str(images / "a.jpg")]
    assert len(list_images(twice)) == 5
