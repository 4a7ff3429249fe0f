"""`heedful features`: what it writes and prints, and its refusals."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from heedful.data.images.features import ImageFeatures
from heedful.models.efficientnet import EfficientNetLite0
from tests.commands import heedful


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with two images and random weights, and work in it."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    save_file(EfficientNetLite0().state_dict(), "weights.safetensors")
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.jpg"):
        pixels = rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / name)
    return tmp_path


@pytest.fixture
def extract(capsys, monkeypatch):
    def call(*words):
        weights = ("--weights", "weights.safetensors", "--device", "cpu")
        return heedful(capsys, monkeypatch, "features", *words, *weights)

    return call


@pytest.mark.parametrize("bits", [32, 16, 8, 4])
def test_features_of_a_folder(folder, extract, bits):
    ended = extract("photos", "--out", "f.safetensors", "--size", "64", "--bits", str(bits))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "wrote f.safetensors: 2 images, 2 x 2 x 320\n"
    features = ImageFeatures.open("f.safetensors")
    assert features.images == ("photos/a.png", "photos/b.jpg")
    assert (features.bits, features.grid) == (bits, (2, 2))
    assert np.isfinite(features.read([0, 1])).all()


def test_notes_and_broken_images_printed(folder, extract):
    frames = [Image.new("RGB", (50, 50), color) for color in ("red", "blue")]
    frames[0].save("photos/c.gif", save_all=True, append_images=frames[1:])
    (folder / "photos" / "d.png").write_bytes(b"")
    words = ("photos", "-o", "f.npy", "--size", "32")
    ended = extract(*words)
    assert ended.code == 2
    assert ended.err == (
        "heedful: 1 of 4 images: cannot be read\n"
        "  photos/d.png: the file is empty\n"
        "  replace or remove them, or leave them out with --skip-broken\n"
    )
    ended = extract(*words, "--skip-broken")
    assert ended.code == 0
    assert ended.err == (
        "photos/c.gif: only the first of 2 frames or pages is read\n"
        "left out: photos/d.png: the file is empty\n"
    )
    assert ended.out == "wrote f.npy: 3 images, 1 x 1 x 320\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("photos", "-o", "f.pt"),
            "f.pt: a feature file is called .safetensors or .npy\n  rename it to f.safetensors\n",
        ),
        (
            ("photos", "-o", "f.npy", "--bits", "4"),
            "f.npy: codes of 4 bits need steps and offsets, which .npy has no place for\n"
            "  write f.safetensors\n",
        ),
        (("foto", "-o", "f.npy"), "foto: no such file or folder\n  check the path\n"),
    ],
)
def test_refusals(folder, extract, words, message):
    ended = extract(*words)
    assert (ended.code, ended.err) == (2, f"heedful: {message}")
    assert not (folder / "f.npy").exists()
