import base64
import io
import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from heedful.errors import DataError
from heedful.plotting import raster
from heedful.plotting.svg import DARK, LIGHT

RNG = np.random.default_rng(0)


@settings(deadline=None)
# Of a single column torch 2.13 repeats the first row, so there are two at least.
@given(st.tuples(*[st.integers(2, 20)] * 4), st.integers(0, 1000))
def test_resize_same_as_torch(sizes, seed):
    rows, columns, height, width = sizes
    values = np.random.default_rng(seed).random((rows, columns, 3))
    tensor = torch.from_numpy(values).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(
        tensor, (height, width), mode="bilinear", antialias=True
    )
    resized = raster.resize(values, height, width)
    np.testing.assert_allclose(resized, expected[0].permute(1, 2, 0), atol=1e-12)


def test_repeated_cells_cover_equal_parts():
    grid = np.array([[1.0, 2.0], [3.0, 4.0]])
    expected = np.kron(grid, np.ones((3, 2)))
    np.testing.assert_array_equal(raster.repeat_cells(grid, 6, 4), expected)


def test_enlarged_cells_keep_value_at_the_center():
    grid = RNG.random((4, 5))
    np.testing.assert_allclose(raster.resize(grid, 12, 15)[1::3, 1::3], grid)


def test_gray_image_becomes_rgb():
    gray = RNG.integers(0, 256, (4, 6), dtype=np.uint8)
    for image in (gray, gray[..., None]):
        rgb = raster.to_rgb(image)
        assert rgb.shape == (4, 6, 3)
        assert (rgb == gray[..., None]).all()


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (np.zeros((2, 2)), "float64 of shape (2, 2)"),
        (np.zeros((2, 2, 4), dtype=np.uint8), "uint8 of shape (2, 2, 4)"),
        (np.zeros((0, 3), dtype=np.uint8), "uint8 of shape (0, 3)"),
        (np.zeros(3, dtype=np.uint8), "uint8 of shape (3,)"),
    ],
)
def test_other_arrays_are_no_images(image, found):
    with pytest.raises(DataError) as error:
        raster.to_rgb(image)
    assert str(error.value) == (
        f"image: an image must be uint8 pixels, but is {found}\n"
        "  give an array (height, width), (height, width, 1) or (height, width, 3) of 0 to 255"
    )


def test_unattended_pixels_faded_gray_and_attended_ones_tinted():
    red = np.array([[[255, 0, 0], [255, 0, 0], [255, 0, 0]]], dtype=np.uint8)
    blended = raster.blend_attention(red, np.array([[0.0, 1.0, 0.5]]))
    # Gray 0.299 * 255 = 76; 255 + 0.35 * (76 - 255) = 192. Tint: red + 0.25 * (#1e2a80 - red).
    assert blended[0, 0].tolist() == [192, 192, 192]
    assert blended[0, 1].tolist() == [199, 10, 32]
    mean = (blended[0, 0].astype(int) + blended[0, 1]) / 2
    np.testing.assert_allclose(blended[0, 2], mean, atol=1)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("level", [0, 128, 255])
def test_attention_is_visible_on_every_gray(palette, level):
    flat = np.full((1, 2, 3), level, dtype=np.uint8)
    unattended, attended = raster.blend_attention(flat, np.array([[0.0, 1.0]]), palette)[0]
    assert np.abs(unattended.astype(int) - attended).max() >= 32


def read_png(data):
    """Decode a PNG without interlacing, in a second way: chunk by chunk, line by line."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    position, chunks = 8, {}
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        name = data[position + 4 : position + 8]
        chunks[name] = data[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack(">I", data[position + 8 + length : position + 12 + length])
        assert checksum == zlib.crc32(name + chunks[name])
        position += 12 + length
    width, height, depth, color_type, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert depth == 8
    channels = {0: 1, 4: 2, 2: 3}[color_type]
    lines, above, rows = zlib.decompress(chunks[b"IDAT"]), bytes(width * channels), []
    for row in range(height):
        line = lines[row * (1 + len(above)) : (row + 1) * (1 + len(above))]
        assert line[0] == 2
        above = bytes((up + byte) % 256 for up, byte in zip(above, line[1:], strict=True))
        rows.append(list(above))
    return np.array(rows, dtype=np.uint8).reshape(height, width, channels)


shapes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3))


@given(npst.arrays(np.uint8, shapes))
def test_png_can_be_read_back(pixels):
    np.testing.assert_array_equal(read_png(raster.encode_png(pixels)), pixels)


def test_pillow_loads_the_png():
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for channels in (1, 2, 3):
        pixels = RNG.integers(0, 256, (5, 7, channels), dtype=np.uint8)
        opened = np.array(image.open(io.BytesIO(raster.encode_png(pixels))))
        np.testing.assert_array_equal(opened.reshape(pixels.shape), pixels)


def test_data_uri_contains_the_png():
    pixels = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    prefix, data = raster.to_data_uri(pixels).split(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(data) == raster.encode_png(pixels)


def test_half_blocks_have_two_rows_of_pixels():
    rgb = RNG.integers(0, 256, (3, 4, 3), dtype=np.uint8)
    lines = raster.half_blocks(rgb)
    assert [line.plain for line in lines] == [4 * "\u2580"] * 2
    for row, line in enumerate(lines):
        for column, span in enumerate(line.spans):
            assert tuple(span.style.color.triplet) == tuple(rgb[2 * row, column])
            background = span.style.bgcolor
            assert (background is None) == (row == 1)
            if background:
                assert tuple(background.triplet) == tuple(rgb[2 * row + 1, column])


@pytest.mark.parametrize(("shape", "size"), [((600, 1200), (256, 512)), ((30, 20), (30, 20))])
def test_large_image_is_shrunk_in_proportion(shape, size):
    flat = np.full((*shape, 3), 77, dtype=np.uint8)
    shrunk = raster.shrink(flat, 512)
    assert shrunk.shape[:2] == size
    assert (shrunk == 77).all()
