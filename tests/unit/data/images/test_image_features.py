"""Feature files: every storage gives the same numbers, in any order, in any process."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from heedful.data.images.features import ImageFeatures, encode, fit_scale, write_features
from heedful.errors import DataError

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(10, 12, 6)).astype(np.float32)
CODES = RNG.integers(0, 256, (10, 9, 4), dtype=np.uint8)


def npy(path, array):
    np.save(path, array)
    return str(path)


def test_float_files_load_as_they_are(tmp_path):
    features = ImageFeatures.open(npy(tmp_path / "f.npy", VALUES), grid=(3, 4))
    assert (len(features), features.num_channels, features.grid, features.bits) == (
        10,
        6,
        (3, 4),
        32,
    )
    np.testing.assert_array_equal(features.read([7, 0, 7]), VALUES[[7, 0, 7]])
    half = ImageFeatures.open(npy(tmp_path / "h.npy", VALUES.astype(np.float16)))
    assert half.bits == 16
    assert half.read([1]).dtype == np.float32
    np.testing.assert_array_equal(half.read([1])[0], VALUES[1].astype(np.float16))


def test_values_are_memory_mapped(tmp_path):
    features = ImageFeatures.open(npy(tmp_path / "f.npy", VALUES))
    assert isinstance(features.values, np.memmap)
    save_file({"features": VALUES}, tmp_path / "f.safetensors")
    mapped = ImageFeatures.open(str(tmp_path / "f.safetensors"))
    base = mapped.values
    while not isinstance(base, np.memmap):
        base = base.base
    np.testing.assert_array_equal(mapped.read(range(10)), VALUES)


def test_four_dimensions_return_the_grid(tmp_path):
    features = ImageFeatures.open(npy(tmp_path / "f.npy", VALUES.reshape(10, 2, 6, 6)))
    assert features.grid == (2, 6)
    np.testing.assert_array_equal(features.read([3])[0], VALUES[3])  # row by row


@pytest.mark.parametrize(
    ("cells", "grid"), [(49, (7, 7)), (36, (6, 6)), (12, (1, 12)), (1, (1, 1))]
)
def test_cells_form_a_square_or_a_row(tmp_path, cells, grid):
    array = np.zeros((2, cells, 3), np.float32)
    assert ImageFeatures.open(npy(tmp_path / "f.npy", array)).grid == grid


def test_8_bit_codes_have_step_and_offset_per_channel(tmp_path):
    scale = np.array([[0.5, 1, 2, 4], [0, -1, -100, 3]], np.float32)
    files = npy(tmp_path / "f.npy", CODES), npy(tmp_path / "s.npy", scale)
    features = ImageFeatures.open(*files)
    assert (features.bits, features.num_channels) == (8, 4)
    expected = [
        [[CODES[row, cell, channel] * scale[0, channel] + scale[1, channel] for channel in range(4)]
         for cell in range(9)]
        for row in (2, 5)
    ]  # fmt: skip
    np.testing.assert_array_equal(features.read([2, 5]), expected)


def test_4_bit_codes_have_the_even_channel_in_the_low_half(tmp_path):
    scale = np.stack([np.arange(1, 9), np.arange(8) * 10]).astype(np.float32)
    features = ImageFeatures.open(npy(tmp_path / "f.npy", CODES), npy(tmp_path / "s.npy", scale))
    assert (features.bits, features.num_channels) == (4, 8)
    values = features.read([4])
    for cell in range(9):
        for channel in range(8):
            byte = int(CODES[4, cell, channel // 2])
            code = byte // 16 if channel % 2 else byte % 16
            assert values[0, cell, channel] == code * (channel + 1) + channel * 10


def test_scale_may_be_in_the_same_file(tmp_path):
    scale = np.array([[1] * 8, [0] * 8], np.float32)
    save_file({"features": CODES, "scale": scale}, tmp_path / "f.safetensors")
    inside = ImageFeatures.open(str(tmp_path / "f.safetensors"))
    beside = ImageFeatures.open(npy(tmp_path / "f.npy", CODES), npy(tmp_path / "s.npy", scale))
    np.testing.assert_array_equal(inside.read(range(10)), beside.read(range(10)))
    assert inside.fingerprint() == beside.fingerprint()


@pytest.mark.parametrize("change", ["value", "scale", "grid"])
def test_fingerprint_changes_with_contents(tmp_path, change):
    codes, scale = CODES.copy(), np.array([[1] * 4, [0] * 4], np.float32)
    before = ImageFeatures.open(npy(tmp_path / "f.npy", codes), npy(tmp_path / "s.npy", scale))
    codes[9, 8, 3] ^= change == "value"
    scale[1, 3] += change == "scale"
    grid = (1, 9) if change == "grid" else None
    files = npy(tmp_path / "g.npy", codes), npy(tmp_path / "t.npy", scale)
    assert ImageFeatures.open(*files, grid=grid).fingerprint() != before.fingerprint()


def test_copy_in_another_process_maps_the_file_again(tmp_path):
    features = ImageFeatures.open(npy(tmp_path / "f.npy", VALUES), grid=(4, 3))
    pickled = pickle.dumps(features)
    assert len(pickled) < 500
    copied = pickle.loads(pickled)
    assert copied.grid == (4, 3)
    np.testing.assert_array_equal(copied.read([9]), VALUES[9:])


@pytest.mark.parametrize("dtype", [">f4", ">f2", "<f8"])
def test_other_byte_orders_and_doubles_load(tmp_path, dtype):
    features = ImageFeatures.open(npy(tmp_path / "f.npy", VALUES.astype(dtype)))
    np.testing.assert_array_equal(features.read([2])[0], VALUES[2].astype(dtype).astype(np.float32))


def test_fortran_order_loads(tmp_path):
    features = ImageFeatures.open(npy(tmp_path / "f.npy", np.asfortranarray(VALUES)))
    np.testing.assert_array_equal(features.read(range(10)), VALUES)


# ----- writing


def write(path, rows, bits, **metadata):
    shape = (3, 4, rows.shape[2])
    with write_features(path, shape, bits=bits, num_images=10, metadata=metadata) as writer:
        for start in range(0, len(rows), 4):
            names = [f"p/{row}.jpg" for row in range(start, min(start + 4, len(rows)))]
            writer.append(names, rows[start : start + 4])
    return ImageFeatures.open(str(path))


@pytest.mark.parametrize("name", ["f.safetensors", "f.npy"])
@pytest.mark.parametrize("bits", [32, 16])
def test_written_floats_load_back(tmp_path, name, bits):
    features = write(tmp_path / name, VALUES, bits, encoder="x")
    assert (features.bits, features.grid, len(features)) == (bits, (3, 4), 10)
    assert features.images == tuple(f"p/{row}.jpg" for row in range(10))
    assert features.metadata["encoder"] == "x"
    expected = VALUES if bits == 32 else VALUES.astype(np.float16)
    np.testing.assert_array_equal(features.read(range(10)), expected)


@pytest.mark.parametrize(("bits", "largest_error"), [(8, 3e-4), (4, 3e-2)])
def test_codes_keep_most_of_the_variance(tmp_path, bits, largest_error):
    rows = (RNG.normal(size=(60, 12, 6)) * [0.01, 1, 5, 100, 1, 1] + [0, 9, 0, -50, 0, 0]).astype(
        np.float32
    )
    rows[..., 5] = 2.5  # a constant channel
    read = write(tmp_path / "f.safetensors", rows, bits).read(range(60))
    error = ((read - rows) ** 2).mean((0, 1)) / np.maximum(rows.var((0, 1)), 1e-9)
    assert error.max() < largest_error  # a normal variable has 1.15 % at best with 4 bits
    assert np.abs(read[..., 5] - 2.5).max() < 1e-5


def test_safetensors_library_loads_the_file(tmp_path):
    write(tmp_path / "f.safetensors", VALUES, 4)
    arrays = load_file(tmp_path / "f.safetensors")
    assert {name: array.shape for name, array in arrays.items()} == {
        "features": (10, 12, 3),
        "scale": (2, 6),
    }


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([4, 8]),
    st.floats(1e-3, 1e3),
    st.floats(-10, 10),
)
def test_codes_inside_the_range_are_off_by_half_a_step(seed, bits, size, shift):
    rows = np.random.default_rng(seed).normal(shift, size, (5, 7, 4)).astype(np.float32)
    scale = fit_scale(rows, bits)
    codes = encode(rows, scale, bits)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(rows.shape)
    decoded = codes * scale[0] + scale[1]
    is_inside = (codes > 0) & (codes < 2**bits - 1)
    rounding = 4 * np.finfo(np.float32).eps * np.abs(rows).max()
    assert (np.abs(decoded - rows) <= 0.5 * scale[0] + rounding)[is_inside].all()


def test_interrupted_extraction_leaves_nothing(tmp_path):
    path = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        _interrupt(path)
    assert list(tmp_path.iterdir()) == []


def _interrupt(path):
    with write_features(path, (3, 4, 6), num_images=10, metadata={}) as writer:
        writer.append(["a"], VALUES[:1])
        raise KeyboardInterrupt


def test_unrelated_json_in_the_same_folder_is_ignored(tmp_path):
    path = npy(tmp_path / "f.npy", VALUES)
    for text in ('{"a": 1}', "[]", "{", "\xff"):
        (tmp_path / "f.json").write_text(text, encoding="latin-1")
        assert ImageFeatures.open(path).images == ()


def test_names_must_be_as_many_as_rows(tmp_path):
    path = npy(tmp_path / "f.npy", VALUES)
    (tmp_path / "f.json").write_text(json.dumps({"images": '["a", "b"]'}))
    with pytest.raises(DataError, match="images named: 2, but it has 10"):
        _ = ImageFeatures.open(path).images


def test_flickr8k_features_are_those_of_the_readme(heedful_data):
    folder = heedful_data / "flickr8k"
    scale = np.load(folder / "features_scale.npy")
    features = ImageFeatures.open(
        str(folder / "features_dev.npy"), str(folder / "features_scale.npy")
    )
    batch = np.load(folder / "features_dev.npy")[[5, 999]]
    values = np.stack([batch & 15, batch >> 4], axis=-1).reshape(*batch.shape[:-1], 128)
    np.testing.assert_array_equal(
        features.read([5, 999]), values.astype(np.float32) * scale[0] + scale[1]
    )
    assert (features.grid, features.num_channels, features.bits) == ((7, 7), 128, 4)
