"""Idx files: what is written is read back, and every broken file is named with its cause."""

import gzip
import lzma
import struct

import numpy as np
import pytest

from heedful.data.images.idx_files import find_labels, read_idx, write_idx
from heedful.errors import DataError

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
HEADER = b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4)
_HINT = "give an idx file, such as train-images-idx3-ubyte of MNIST; also .gz, .xz, .bz2, .zst"
_AGAIN = "copy or download the file again"


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_written_images_load_back(suffix, tmp_path):
    path = tmp_path / f"images-idx3-ubyte{suffix}"
    write_idx(path, IMAGES)
    np.testing.assert_array_equal(read_idx(str(path), 3), IMAGES)


def test_bytes_are_those_of_the_format(tmp_path):
    write_idx(tmp_path / "images", IMAGES)
    assert (tmp_path / "images").read_bytes() == HEADER + bytes(range(24))
    write_idx(tmp_path / "labels", np.array([7, 0], dtype=np.uint8))
    assert (tmp_path / "labels").read_bytes() == b"\0\0\x08\x01\0\0\0\x02\x07\0"


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", f"this is no idx file\n  {_HINT}"),
        (b"\x89PNG\r\n", f"this is no idx file\n  {_HINT}"),
        (b"\0\0\x0d\x03", f"its values are float32, but images and labels are bytes\n  {_HINT}"),
        (b"\0\0\x08\x01\0\0\0\x01\x07", "contains labels, not images\n  name a file of images"),
        (b"\0\0\x08\x02", "contains arrays of 2 dimensions, not images\n  name a file of images"),
        (HEADER[:9], f"ends in its header\n  {_AGAIN}"),
        (
            HEADER + bytes(23),
            f"its header says 2 x 3 x 4 = 24 values, but it has 23\n  {_AGAIN}",
        ),
        (
            HEADER + bytes(30),
            f"its header says 2 x 3 x 4 = 24 values, but it has more\n  {_AGAIN}",
        ),
        (
            b"\0\0\x08\x03" + struct.pack(">3I", 2**31, 28, 28),
            "its header says 2147483648 x 28 x 28 values, which is more than 4,294,967,296\n"
            "  split the file",
        ),
        (
            b"\0\0\x08\x03" + struct.pack(">3I", 0, 28, 28),
            f"is empty: its header says 0 x 28 x 28 values\n  {_HINT}",
        ),
    ],
)
def test_broken_files_described(contents, message, tmp_path):
    path = tmp_path / "images"
    path.write_bytes(contents)
    with pytest.raises(DataError) as caught:
        read_idx(str(path), 3)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_truncated_and_mislabeled_compression_is_described(suffix, pack, tmp_path):
    path = tmp_path / f"images.{suffix}"
    for contents in (pack(HEADER + bytes(24))[:-9], b"no archive at all"):
        path.write_bytes(contents)
        with pytest.raises(DataError) as caught:
            read_idx(str(path), 3)
        cause = f"corrupt, truncated, or not {suffix} data"
        assert str(caught.value) == f"{path}: cannot be decompressed: {cause}\n  {_AGAIN}"


def test_missing_file_and_folder_described(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_idx(str(tmp_path / "images"), 3)
    with pytest.raises(DataError, match="this is a folder, not a file"):
        read_idx(str(tmp_path), 3)


def test_labels_found_in_the_folder_of_images(tmp_path):
    images = tmp_path / "t10k-images-idx3-ubyte.xz"
    with pytest.raises(DataError) as caught:
        find_labels(str(images))
    assert str(caught.value) == (
        f"{images}: there is no file of its labels: t10k-labels-idx1-ubyte, "
        "also .gz, .xz, .bz2, .zst\n"
        "  copy it into the same folder"
    )
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    labels.touch()
    assert find_labels(str(images)) == str(labels)
    with pytest.raises(DataError, match="its name does not say where its labels are"):
        find_labels(str(tmp_path / "images.gz"))
