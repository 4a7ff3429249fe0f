"""Every writer leaves files and folders with the mode that the umask gives, not only the owner's.

Libraries that write through temporary files give mode 0600; a model must be readable by a group.
`tests.exporting.export` asserts it for exports to other formats.
"""

import os

import numpy as np
import pytest

import heedful
from heedful.conversion.exporting import export_run
from heedful.conversion.importing import import_run
from heedful.data.images.features import write_features
from heedful.data.images.labeled_images import write_idx
from heedful.storage.atomic import atomic_replace, write_text
from tests.commands import write_random_run, write_recipe
from tests.exporting import TEXTS, TRANSFORMER, UMASK, assert_modes

CHARACTERS = {"type": "shared", "tokenizer": {"type": "character"}}
SETTINGS = {"tokenizers": CHARACTERS, "model": {"encoder": TRANSFORMER, "decoder": TRANSFORMER}}


@pytest.fixture(autouse=True)
def umask():
    previous = os.umask(UMASK)
    yield
    os.umask(previous)


@pytest.fixture
def run(tmp_path):
    return write_random_run(tmp_path / "run", SETTINGS, TEXTS, TEXTS, seed=0)


def test_storage_follows_the_umask(tmp_path):
    folder = tmp_path / "folder"
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
    write_text(folder / "inner" / "file.txt", "text")
    write_idx(folder / "images.gz", np.zeros((2, 3, 3), np.uint8))
    path = folder / "features.npy"
    with write_features(path, (1, 1, 2), num_images=1, metadata={}) as writer:
        writer.append(["a.png"], np.zeros((1, 1, 2), np.float32))
    assert_modes(folder)


def test_training_follows_the_umask(tmp_path):
    recipe = write_recipe(tmp_path / "data", steps=2, every=1)
    heedful.train(str(recipe), tmp_path / "run")
    assert_modes(tmp_path / "run")


@pytest.mark.parametrize("target", ["safetensors", "hf"])
@pytest.mark.wide
def test_export_and_import_follow_the_umask(run, target, tmp_path):
    export_run(run, target, tmp_path / "out")
    import_run(tmp_path / "out", tmp_path / "back")
    for name in ("run", "out", "back"):
        assert_modes(tmp_path / name)
