"""Image files in odd formats, resizing, and image sheets."""

import gzip
import io
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heedful.data.images.image_files import (
    FileListError,
    ImageArray,
    ImageFiles,
    load_image,
    load_pixels,
    resize_image,
)
from heedful.errors import DataError

RED, GREEN, BLUE, GRAY = (255, 0, 0), (0, 128, 0), (0, 0, 255), (90, 90, 90)
QUADRANTS = np.array([[RED, GREEN], [BLUE, GRAY]], np.uint8).repeat(16, 0).repeat(24, 1)


def save(path, image=None, **options):
    """Write the four colors of QUADRANTS, or an image."""
    if image is None:
        image = Image.fromarray(QUADRANTS)
    image.save(path, **options)
    return path


LOSSLESS = ["a.png", "a.bmp", "a.tif", "a.ppm", "a.tga", "a.gif", "a.dib"]


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_return_the_pixels(tmp_path, name):
    pixels = load_image(save(tmp_path / name))
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, QUADRANTS)


@pytest.mark.parametrize("name", ["a.jpg", "a.webp", "a.jp2", "a.avif"])
def test_lossy_formats_return_nearly_the_pixels(tmp_path, name):
    pixels = load_image(save(tmp_path / name))
    assert pixels.shape == QUADRANTS.shape
    inner = pixels[4:12, 4:20].astype(int)  # of the red quadrant, away from its borders
    assert np.abs(inner - RED).max() < 20


def test_gray_mode_is_that_of_pillow(tmp_path):
    gray = load_image(save(tmp_path / "a.png"), "L")
    assert gray.shape == (32, 48, 1)
    # ITU-R 601-2: 0.299 R + 0.587 G + 0.114 B
    corners = gray[[0, 0, -1, -1], [0, -1, 0, -1], 0]
    assert corners.tolist() == [76, 75, 29, 90]


def test_gray_and_bilevel_files_become_rgb(tmp_path):
    gray = Image.fromarray(np.full((3, 5), 77, np.uint8))
    assert (load_image(save(tmp_path / "g.png", gray)) == 77).all()
    bilevel = Image.fromarray(np.eye(4) > 0)
    assert bilevel.mode == "1"
    pixels = load_image(save(tmp_path / "b.png", bilevel))
    np.testing.assert_array_equal(pixels[:, :, 2], np.eye(4) * 255)


def test_transparent_pixels_are_white(tmp_path):
    rgba = np.array([[(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 51)]], np.uint8)
    expected = [[[255, 0, 0], [255, 255, 255], [204, 204, 204]]]
    assert load_image(save(tmp_path / "a.png", Image.fromarray(rgba))).tolist() == expected
    gray_alpha = Image.fromarray(np.array([[[0, 255], [0, 0]]], np.uint8), "LA")
    pixels = load_image(save(tmp_path / "la.png", gray_alpha), "L")
    assert pixels[:, :, 0].tolist() == [[0, 255]]


def test_palette_files_have_colors_and_transparency(tmp_path):
    palette = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    palette.putpalette([*RED, *GREEN, *BLUE])
    expected = [list(RED), list(GREEN), list(BLUE)]
    assert load_image(save(tmp_path / "p.png", palette))[0].tolist() == expected
    pixels = load_image(save(tmp_path / "t.gif", palette, transparency=1))
    assert pixels[0].tolist() == [list(RED), [255, 255, 255], list(BLUE)]
    assert load_image(save(tmp_path / "p.png", palette), "L")[0, :, 0].tolist() == [76, 75, 29]


def test_16_bit_values_scaled_not_clipped(tmp_path):
    values = np.array([[0, 257, 32896, 65535, 300]], np.uint16)  # 257 * 128 = 32896
    for name in ("a.png", "a.tif", "a.pgm"):
        notes = []
        pixels = load_image(save(tmp_path / name, Image.fromarray(values)), notes=notes)
        assert pixels[0, :, 0].tolist() == [0, 1, 128, 255, 1]
        assert notes == [f"{tmp_path / name}: 16 bits per pixel are reduced to 8"]


def test_cmyk_becomes_rgb(tmp_path):
    cmyk = Image.new("CMYK", (40, 30), (0, 255, 255, 0))  # magenta and yellow make red
    notes = []
    for name in ("a.jpg", "a.tif"):
        pixels = load_image(save(tmp_path / name, cmyk), notes=notes)
        assert np.abs(pixels.astype(int) - RED).max() < 6
    assert notes[0] == f"{tmp_path / 'a.jpg'}: CMYK is converted without its color profile"


@pytest.mark.parametrize("mode", ["YCbCr", "RGBA", "LA", "L", "P", "1", "CMYK", "I;16", "RGB"])
def test_every_mode_that_tiff_stores_loads(tmp_path, mode):
    source = Image.fromarray(QUADRANTS)
    image = source.convert("L") if mode == "I;16" else source
    path = save(tmp_path / "a.tif", image.convert(mode))
    assert load_image(path).shape == (32, 48, 3)
    assert load_image(path, "L").shape == (32, 48, 1)


def test_first_frame_of_an_animation_loads_with_a_note(tmp_path):
    frames = [Image.new("RGB", (8, 6), color) for color in (RED, GREEN, BLUE)]
    for name in ("a.gif", "a.webp", "a.png", "a.tif"):
        path, notes = tmp_path / name, []
        frames[0].save(path, save_all=True, append_images=frames[1:])
        assert np.abs(load_image(path, notes=notes).astype(int) - RED).max() < 6
        assert notes == [f"{path}: only the first of 3 frames or pages is read"]


def test_rotation_of_a_camera_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise
    pixels = load_image(save(tmp_path / "a.png", exif=exif))
    np.testing.assert_array_equal(pixels, np.rot90(QUADRANTS, -1))


def test_wrongly_named_file_loads_by_the_contents(tmp_path):
    save(tmp_path / "a.bmp").rename(tmp_path / "a.jpg")
    notes = []
    np.testing.assert_array_equal(load_image(tmp_path / "a.jpg", notes=notes), QUADRANTS)
    assert notes == [f"{tmp_path / 'a.jpg'}: named as JPEG, but contains BMP"]


def test_ordinary_files_have_no_notes(tmp_path):
    notes = []
    for name in ("a.jpg", "a.JPEG", "a.png", "a.tiff", "noname"):
        save(tmp_path / name, format="PNG" if name == "noname" else None)
        load_image(tmp_path / name, notes=notes)
    assert notes == []


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP"]),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    end=st.floats(0, 1),
)
def test_damaged_files_are_whole_images_or_data_errors(tmp_path_factory, form, cuts, end):
    stream = io.BytesIO()
    Image.fromarray(QUADRANTS).save(stream, form)
    data = bytearray(stream.getvalue())
    for place, byte in cuts:
        data[int(place * (len(data) - 1))] = byte
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(data[: max(1, int(end * len(data)))])
    with suppress(DataError):  # and no other error
        pixels = load_image(path)
        assert pixels.ndim == 3
        assert pixels.shape[2] == 3


def test_all_broken_images_listed(tmp_path):
    paths = [save(tmp_path / "ok.png"), tmp_path / "empty.png", tmp_path / "zzzz"]
    paths[1].write_bytes(b"")
    with pytest.raises(FileListError) as error:
        ImageFiles().read([str(path) for path in paths])
    assert str(error.value) == (
        "2 of 3 images: cannot be read\n"
        f"  {paths[1]}: the file is empty\n"
        f"  {paths[2]}: no such file\n"
        "  replace or remove them"
    )


# ----- resizing


@pytest.mark.parametrize("size", [(16, 24), (64, 96), (17, 31), (1, 1), (100, 5)])
def test_stretching_agrees_with_pillow(size):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (37, 53, 3), dtype=np.uint8)
    expected = Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR)
    resized = resize_image(pixels, *size, "stretch")
    assert resized.shape == (*size, 3)
    assert np.abs(resized.astype(int) - np.asarray(expected)).max() <= 1


def test_cropping_keeps_the_middle():
    pixels = np.zeros((4, 12, 1), np.uint8)
    pixels[:, 4:8] = 200
    np.testing.assert_array_equal(resize_image(pixels, 4, 4, "crop"), pixels[:, 4:8])
    tall = pixels.transpose(1, 0, 2)
    np.testing.assert_array_equal(resize_image(tall, 4, 4, "crop"), tall[4:8])


def test_padding_adds_white_on_both_sides():
    pixels = np.zeros((4, 12, 3), np.uint8)
    padded = resize_image(pixels, 12, 12, "pad")
    assert (padded[4:8] == 0).all()
    assert (padded[:4] == 255).all()
    assert (padded[8:] == 255).all()
    tall = resize_image(pixels.transpose(1, 0, 2), 12, 12, "pad")
    np.testing.assert_array_equal(tall, padded.transpose(1, 0, 2))


@settings(max_examples=60, deadline=None)
@given(
    old=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    new=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    fit=st.sampled_from(["crop", "pad", "stretch"]),
    value=st.integers(0, 255),
)
def test_size_is_exact_and_one_color_stays_one_color(old, new, fit, value):
    resized = resize_image(np.full((*old, 1), value, np.uint8), *new, fit)
    assert resized.shape == (*new, 1)
    assert set(np.unique(resized)) <= ({value, 255} if fit == "pad" else {value})
    assert value in resized


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_same_size_is_the_same_image(fit):
    np.testing.assert_array_equal(resize_image(QUADRANTS, 32, 48, fit), QUADRANTS)


# ----- sheets


def sheet_of(path, array):
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        np.save(file, array)
    return str(path)


SHEET = np.random.default_rng(1).integers(0, 256, (5, 4, 6), dtype=np.uint8)


@pytest.mark.parametrize("name", ["s.npy", "s.npy.gz"])
def test_gray_sheet_loads_by_rows(tmp_path, name):
    sheet = ImageArray.open(sheet_of(tmp_path / name, SHEET))
    assert len(sheet) == 5
    first, second = sheet.read([3, 0], "L")
    np.testing.assert_array_equal(first[:, :, 0], SHEET[3])
    np.testing.assert_array_equal(second[:, :, 0], SHEET[0])
    (color,) = sheet.read([3])
    np.testing.assert_array_equal(color, SHEET[3][:, :, None].repeat(3, 2))


def test_palette_of_a_sheet_returns_colors(tmp_path):
    palette = np.random.default_rng(2).integers(0, 256, (256, 3), dtype=np.uint8)
    colors = sheet_of(tmp_path / "p.npy", palette)
    sheet = ImageArray.open(sheet_of(tmp_path / "s.npy", SHEET), colors)
    np.testing.assert_array_equal(sheet.read([2])[0], palette[SHEET[2]])


def test_color_sheet_in_gray_agrees_with_pillow(tmp_path):
    array = np.random.default_rng(3).integers(0, 256, (2, 40, 50, 3), dtype=np.uint8)
    sheet = ImageArray.open(sheet_of(tmp_path / "s.npy", array))
    expected = np.asarray(Image.fromarray(array[1]).convert("L"))
    np.testing.assert_array_equal(sheet.read([1], "L")[0][:, :, 0], expected)


def test_transparent_and_bilevel_sheets(tmp_path):
    array = np.array([[[(255, 0, 0, 255), (9, 9, 9, 0)]]], np.uint8)
    sheet = ImageArray.open(sheet_of(tmp_path / "s.npy", array))
    assert sheet.read([0])[0].tolist() == [[[255, 0, 0], [255, 255, 255]]]
    sheet = ImageArray.open(sheet_of(tmp_path / "b.npy", np.eye(3)[None] > 0))
    assert sheet.read([0], "L")[0][:, :, 0].tolist() == (np.eye(3) * 255).tolist()


def test_pixels_of_several_images_have_one_size(tmp_path):
    small = save(tmp_path / "a.png")
    large = save(tmp_path / "b.png", Image.new("RGB", (100, 60), GREEN))
    pixels = load_pixels(ImageFiles(), [str(small), str(large)], 20, 30)
    assert pixels.shape == (2, 3, 20, 30)
    assert pixels[1, :, 7, 7].tolist() == list(GREEN)
    gray = load_pixels(ImageFiles(), [str(small)], 32, 48, mode="L", fit="pad")
    np.testing.assert_array_equal(gray[0, 0], load_image(small, "L")[:, :, 0])


@pytest.mark.wide  # another process imports torch
def test_pillow_is_imported_by_the_first_image_only():
    """Commands without images, and those with sheets and features, work without the extra."""
    program = (
        "import sys, heedful, heedful.cli.main, heedful.tasks.registry as registry\n"
        "import heedful.data.images.captions, heedful.data.images.features, heedful.cli.data\n"
        "import heedful.models.feature_extraction\n"
        "from heedful.data.images.image_files import resize_image\n"
        "import numpy\n"
        "resize_image(numpy.zeros((4, 4, 3), numpy.uint8), 2, 2)\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'PIL'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
