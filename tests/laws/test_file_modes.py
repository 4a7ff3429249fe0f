"""Every writer leaves files and folders with the mode that the umask gives, not only the owner's.

Libraries that write through temporary files give mode 0600; a model must be readable by a group.
"""

import os
import stat

import numpy as np
import pytest

import heedful
from heedful.conversion.exporting import export_run
from heedful.conversion.importing import import_run
from heedful.conversion.registry import EXPORTERS, get_exporter
from heedful.data.images.feature_files import write_features
from heedful.data.images.idx_files import write_idx
from heedful.storage.atomic import atomic_replace, write_text
from tests.commands import write_random_run, write_recipe
from tests.exporting import TEXTS, TRANSFORMER, export

CHARACTERS = {"type": "shared", "tokenizer": {"type": "character"}}
SETTINGS = {"tokenizers": CHARACTERS, "model": {"encoder": TRANSFORMER, "decoder": TRANSFORMER}}


@pytest.fixture(autouse=True)
def umask():
    """Set a umask that no default has."""
    previous = os.umask(0o027)
    yield
    os.umask(previous)


def assert_modes(folder):
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 1
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    expected = {path.name: 0o750 if path.is_dir() else 0o640 for path in paths}
    assert modes == expected


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
def test_export_and_import_follow_the_umask(run, target, tmp_path):
    export_run(run, target, tmp_path / "out")
    import_run(tmp_path / "out", tmp_path / "back")
    for name in ("run", "out", "back"):
        assert_modes(tmp_path / name)


@pytest.mark.extras
@pytest.mark.parametrize("target", sorted(EXPORTERS.keys() - {"safetensors", "hf"}))
def test_graph_exports_follow_the_umask(run, target, tmp_path):
    for package in get_exporter(target).packages:
        pytest.importorskip(package)
    export(run, target, tmp_path / "out")
    assert_modes(tmp_path / "out")
