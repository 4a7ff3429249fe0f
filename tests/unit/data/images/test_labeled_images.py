"""Labeled images: scenes against a loop, layouts, streams that resume, and idx files."""

import gzip
import lzma
import struct
from itertools import islice

import numpy as np
import pytest
import torch

from heedful.data.images.labeled_images import (
    IdxImagesConfig,
    LabeledImage,
    LabeledImageBatchingConfig,
    LabeledImageBatchStream,
    find_labels,
    read_idx,
    render_scenes,
    stack_images,
    write_idx,
)
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.digits import BuiltInDigitsConfig
from heedful.errors import DataError


def random_images(count=10, size=6, seed=0):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, size, size), dtype=np.uint8)
    return [LabeledImage(image, index % 10) for index, image in enumerate(pixels)]


def dataset(canvas=12, count=10, **batching):
    config = LabeledImageBatchingConfig(batch_size=4, distractor_size=3, **batching)
    return stack_images(random_images(count), canvas, config, location="images")


def test_scenes_match_a_loop_over_pixels():
    """Distractors are added and clipped, then the digit is added and clipped."""
    data = dataset(num_distractors=5)
    rows = np.arange(len(data))
    layouts = data.fixed_layouts
    scenes = data.collate(rows).render(12)
    for row in rows:
        canvas = np.zeros((12, 12))
        for patch in range(5):
            source = data.images[layouts.sources[row, patch]] / 255
            y, x = layouts.source_offsets[row, patch]
            top, left = layouts.distractor_offsets[row, patch]
            canvas[top : top + 3, left : left + 3] += source[y : y + 3, x : x + 3]
        canvas = np.minimum(canvas, 1)
        top, left = layouts.offsets[row]
        canvas[top : top + 6, left : left + 6] += data.images[row] / 255
        np.testing.assert_allclose(scenes[row].numpy(), np.minimum(canvas, 1), atol=1e-6)


def test_offsets_cover_the_whole_canvas_and_nothing_else():
    data = dataset(num_distractors=2)
    layouts = data.draw_layouts([3], 5000)
    limits = {"offsets": 6, "sources": 9, "source_offsets": 3, "distractor_offsets": 9}
    for name, limit in limits.items():
        values = getattr(layouts, name)
        assert (values.min(), values.max()) == (0, limit), name
        counts = np.bincount(values.ravel()) / values.size
        np.testing.assert_allclose(counts, 1 / (limit + 1), atol=0.02)


def test_position_of_a_test_image_depends_only_on_the_row():
    few, many = dataset(count=4), dataset(count=10)
    np.testing.assert_array_equal(few.fixed_layouts.offsets, many.fixed_layouts.offsets[:4])
    rows = np.array([3, 1])
    batch, alone = many.collate(rows), many.collate(rows[:1])
    torch.testing.assert_close(batch.render(12)[:1], alone.render(12))


def test_images_that_fill_the_canvas_used_as_they_are():
    data = dataset(canvas=6, num_distractors=4)
    batch = data.collate(np.array([2]))
    assert batch.offsets is None
    torch.testing.assert_close(batch.render(6)[0], torch.from_numpy(data.images[2] / 255).float())


def test_epoch_contains_each_image_once_and_epochs_differ():
    data = dataset()
    stream = iter(LabeledImageBatchStream(data, data.batching.batch_size, 0, DataCursor(0, 0)))
    epochs = [list(islice(stream, 3)) for _ in range(2)]
    orders = [torch.cat([batch.images for batch in epoch]) for epoch in epochs]
    for order in orders:
        assert sorted(map(bytes, order.numpy())) == sorted(map(bytes, data.images))
    assert not torch.equal(*orders)
    offsets = [torch.cat([batch.offsets for batch in epoch]) for epoch in epochs]
    assert not torch.equal(*offsets)


def test_stream_resumes_at_the_cursor():
    data = dataset(num_distractors=2)
    stream = LabeledImageBatchStream(data, data.batching.batch_size, 7, DataCursor(0, 0))
    batches, cursors = [], []
    for batch in islice(stream, 7):
        batches.append(batch)
        cursors.append(stream.cursor)
    for index in range(6):
        resumed = next(
            iter(LabeledImageBatchStream(data, data.batching.batch_size, 7, cursors[index]))
        )
        for one, other in zip(resumed, batches[index + 1], strict=True):
            assert torch.equal(one, other)


def test_rendered_scenes_are_those_of_a_batch(tmp_path):
    """Files that the command writes have the images that a model sees, up to rounding."""
    pixels, labels = render_scenes(random_images(size=9), 28, 2, seed=0)
    assert pixels.shape == (10, 28, 28)
    write_idx(tmp_path / "a-images-idx3-ubyte.gz", pixels)
    write_idx(tmp_path / "a-labels-idx1-ubyte.gz", labels)
    examples = IdxImagesConfig(path=str(tmp_path / "a-images-idx3-ubyte.gz")).read()
    np.testing.assert_array_equal(np.stack([example.pixels for example in examples]), pixels)
    assert [example.label for example in examples] == list(range(10))


@pytest.mark.parametrize(
    ("canvas", "settings", "message"),
    [
        (
            5,
            {},
            "images: images of 6 x 6 pixels do not fit into 5 x 5\n"
            "  give smaller images, or train with model.image_size=6",
        ),
        (
            12,
            {"num_distractors": 1, "distractor_size": 7},
            "images: distractors of 7 x 7 pixels cannot be cut from 6 x 6\n"
            "  lower data.labeled_images.distractor_size",
        ),
    ],
)
def test_images_that_do_not_fit_described(canvas, settings, message):
    config = LabeledImageBatchingConfig(**settings)
    with pytest.raises(DataError) as caught:
        stack_images(random_images(), canvas, config, location="images")
    assert str(caught.value) == message


def test_images_of_two_sizes_described():
    examples = [*random_images(), *random_images(size=7)]
    with pytest.raises(DataError) as caught:
        stack_images(examples, 12, LabeledImageBatchingConfig(), location="images")
    expected = "images: images of 6 x 6 and of 7 x 7 pixels\n  give images of one size"
    assert str(caught.value) == expected


def test_numbers_of_images_and_labels_must_agree(tmp_path):
    write_idx(tmp_path / "images-idx3", np.zeros((3, 2, 2), dtype=np.uint8))
    write_idx(tmp_path / "labels-idx1", np.zeros(2, dtype=np.uint8))
    with pytest.raises(DataError) as caught:
        IdxImagesConfig(path=str(tmp_path / "images-idx3")).read()
    assert str(caught.value) == (
        f"{tmp_path}/labels-idx1: 2 labels, but {tmp_path}/images-idx3 has 3 images\n"
        "  name the labels of these images"
    )


def test_drawn_digits_depend_only_on_split_seed_and_index():
    first, more = (BuiltInDigitsConfig(num_examples=count).read() for count in (3, 6))
    other = BuiltInDigitsConfig(num_examples=3, split="test").read()
    for one, two, three in zip(first, more, other, strict=False):
        np.testing.assert_array_equal(one.pixels, two.pixels)
        assert one.label == two.label
        assert not np.array_equal(one.pixels, three.pixels)
    labels = {example.label for example in BuiltInDigitsConfig(num_examples=200).read()}
    assert labels == set(range(10))


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
