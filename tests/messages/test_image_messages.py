"""The full text of every error that images, features and caption files can cause."""

import gzip
import io
import json
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from heedful.data.images.array_files import open_array_file
from heedful.data.images.batching import ImageShape
from heedful.data.images.captions import CaptionFileConfig, ImageFolderConfig
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import ImageArray, ImageFiles, load_image
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.tasks.captioning.command import FILE_OPTIONS
from heedful.tasks.captioning.images import ImageLoader

CONVERT = "convert it to PNG or JPEG, for example with `magick INPUT OUTPUT.png`"
COPY = "copy or download the file again"


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, content):
    with open(name, "wb") as file:
        file.write(content)
    return name


def message_of(function, *arguments, error=DataError, **settings):
    with pytest.raises(HeedfulError) as raised:
        function(*arguments, **settings)
    assert type(raised.value) is error or isinstance(raised.value, error)
    return str(raised.value)


def image(form="PNG", size=(64, 48)):
    rng = np.random.default_rng(0)
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(stream, form)
    return stream.getvalue()


# ----- image files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", f"the file is empty\n  {COPY}"),
        (b"hello, world\n", "not an image but text\n  name an image"),
        (b"<html><body>404</body>", "not an image but a web page\n  download the image itself"),
        (b"<?xml version='1.0'?><svg/>", f"not an image but SVG or XML\n  {CONVERT}"),
        (b"%PDF-1.7\n", f"not an image but PDF\n  {CONVERT}"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", f"not an image but PostScript\n  {CONVERT}"),
        (
            b"PK\x03\x04abc",
            "not an image but a zip archive\n  unpack it and name the images in it",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "not an image but a pointer of Git LFS\n  fetch it with `git lfs pull`",
        ),
        (
            b"\0\0\0\x18ftypheic\0\0\0\0",
            f"not an image but HEIC, the format of iPhones\n  {CONVERT}",
        ),
        (
            b"\0\0\0\x18ftypisom\0\0\0\0",
            "not an image but a video\n  save one of its frames as an image",
        ),
        (gzip.compress(b"x", mtime=0), "not an image but gz data\n  decompress it with gunzip"),
        (
            b"\x00\x01\x02\x03" * 20,
            "not an image, or broken, or in a format that Pillow cannot read\n  " + CONVERT,
        ),
        (
            b"\x89PNG\r\n\x1a\n",
            "not an image, or broken, or in a format that Pillow cannot read\n  " + CONVERT,
        ),
    ],
)
def test_files_that_are_no_images(content, message):
    assert message_of(load_image, write("a.jpg", content)) == f"a.jpg: {message}"


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "TIFF", "WEBP"])
def test_truncated_image(form):
    data = image(form)
    text = message_of(load_image, write("a.jpg", data[: len(data) * 2 // 3]))
    assert text.startswith("a.jpg: broken or truncated (") or "not an image, or broken" in text
    assert text.endswith((COPY, CONVERT))


def png_header(width, height):
    """Return a PNG of a few bytes that says it is large."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def test_large_images_raise_before_decoding():
    assert message_of(load_image, write("a.png", png_header(10_000, 6_000))) == (
        "a.png: 10000 x 6000 pixels; the limit is 50,000,000\n"
        "  make it smaller, for example with `magick INPUT -resize 2000x2000 OUTPUT.png`"
    )
    assert message_of(load_image, write("a.png", png_header(60_000, 60_000))) == (
        "a.png: has far more pixels than the limit of 50,000,000\n"
        "  make it smaller, if it is an image at all"
    )


def test_pixels_without_a_known_range():
    Image.fromarray(np.ones((3, 3), np.float32)).save("f.tif")
    hint = "scale them to 0..255 and save them with 8 bits, or as an image sheet (.npy)"
    expected = f"f.tif: pixels are fractions, whose range is not known\n  {hint}"
    assert message_of(load_image, "f.tif") == expected
    Image.fromarray(np.ones((3, 3), np.int32)).save("i.tif")
    expected = f"i.tif: pixels are 32-bit numbers, whose range is not known\n  {hint}"
    assert message_of(load_image, "i.tif") == expected


def test_paths_that_are_no_files():
    write("cat.jpg", image("JPEG"))
    expected = "cta.jpg: no such file; did you mean 'cat.jpg'?\n  check the path"
    assert message_of(load_image, "cta.jpg") == expected
    os.mkdir("d")
    expected = "d: this is a folder, not a file\n  name a file in it"
    assert message_of(load_image, "d") == expected
    assert message_of(load_image, "x/y.png") == "x/y.png: there is no folder 'x'\n  check the path"
    os.mkfifo("pipe")
    assert message_of(load_image, "pipe") == "pipe: not a regular file\n  name an image"
    assert message_of(load_image, "a\0b") == "'a\\x00b': not a path\n  check the path"


def test_missing_pillow_suggests_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    expected = (
        "a.png: reading images needs the package Pillow\n"
        "  install it with: pip install 'heedful[vision]'"
    )
    assert message_of(load_image, "a.png") == expected
    assert message_of(ImageFiles().read, ["a.png", "b.png"]) == expected


# ----- arrays, sheets, features


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "f.txt",
            b"x",
            "not a file of arrays\n  give a .npy, .npy.gz or .safetensors file; save one "
            "with numpy.save",
        ),
        (
            "f.npy",
            b"hello",
            "not an array in the format of numpy\n  give a .npy, .npy.gz or "
            ".safetensors file; save one with numpy.save",
        ),
        (
            "f.npy.gz",
            b"hello",
            f"cannot be decompressed: corrupt, truncated, or not gz data\n  {COPY}",
        ),
        ("f.safetensors", b"hello", f"not a safetensors file\n  {COPY}"),
        ("f.safetensors", b"\2\0\0\0\0\0\0\0[]", f"not a safetensors file\n  {COPY}"),
        ("f.safetensors", b"\xff" * 40, f"not a safetensors file\n  {COPY}"),
    ],
)
def test_files_that_are_no_arrays(name, content, message):
    assert message_of(open_array_file, write(name, content)) == f"{name}: {message}"


def npy(dtype="'<f4'", shape="(2,)"):
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + bytes(8)


NO_ARRAY = "not an array in the format of numpy\n  give a .npy, .npy.gz or "
NO_ARRAY += ".safetensors file; save one with numpy.save"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(dtype="'x'"), NO_ARRAY),
        (npy(dtype="{'names': ['a']}"), NO_ARRAY),
        (npy(shape="(2.5,)"), NO_ARRAY),
        (npy(shape="-" * 5000 + "1"), NO_ARRAY),
        (npy(dtype="'<U0'"), "an array of <U0, not of numbers\n  save it as float32 or uint8"),
        (npy(dtype="'|V0'"), "an array of |V0, not of numbers\n  save it as float32 or uint8"),
        (npy(shape="(-1,)"), f"an array cannot have the shape (-1,)\n  {COPY}"),
        (npy(shape="(True,)"), f"an array cannot have the shape (True,)\n  {COPY}"),
        (
            npy(shape="(9999999999999999999999,)"),
            f"truncated: {4 * 9999999999999999999999 - 8:,} bytes are missing\n  {COPY}",
        ),
    ],
)
def test_odd_npy_headers(content, message):
    assert message_of(open_array_file, write("f.npy", content)) == f"f.npy: {message}"


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [10**12], "data_offsets": [0, 0]},
        {"shape": [-1, -2], "data_offsets": [0, 8]},
        {"shape": [2], "data_offsets": [8, 0]},
        {"shape": [2], "data_offsets": [-4, 4]},
        {"shape": [3], "data_offsets": [0, 8]},
        {"shape": "ab", "data_offsets": [0, 8]},
    ],
)
def test_odd_safetensors_headers(entry):
    text = json.dumps({"features": {"dtype": "F32", **entry}}).encode()
    write("f.safetensors", struct.pack("<Q", len(text)) + text + bytes(8))
    expected = f"f.safetensors: not a safetensors file\n  {COPY}"
    assert message_of(open_array_file, "f.safetensors") == expected


def test_arrays_of_objects_raise():
    np.save("o.npy", np.array([{"a": 1}, None], dtype=object))
    assert message_of(open_array_file, "o.npy") == (
        "o.npy: contains Python objects, which could run code when they are loaded\n"
        "  save an array of numbers: numpy.stack(list(array))"
    )


def test_truncated_arrays():
    np.save("a.npy", np.zeros((50, 4, 8), np.float32))
    with open("a.npy", "rb+") as file:
        file.truncate(1000)
    missing = 128 + 50 * 4 * 8 * 4 - 1000
    expected = f"truncated: {missing:,} bytes are missing\n  {COPY}"
    assert message_of(open_array_file, "a.npy") == f"a.npy: {expected}"
    write("a.npy.gz", gzip.compress(Path("a.npy").read_bytes()))
    assert message_of(open_array_file, "a.npy.gz") == f"a.npy.gz: {expected}"
    save_file({"features": np.zeros((50, 4, 8), np.float32)}, "a.safetensors")
    with open("a.safetensors", "rb+") as file:
        file.truncate(1000)
        size = 8 + struct.unpack("<Q", file.read(8))[0] + 50 * 4 * 8 * 4
    expected = f"a.safetensors: truncated: {size - 1000:,} bytes are missing\n  {COPY}"
    assert message_of(open_array_file, "a.safetensors") == expected


def test_compressed_array_that_would_fill_the_memory():
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (5 * 2**30,)}
    np.lib.format.write_array_header_1_0(stream, header)
    write("a.npy.gz", gzip.compress(stream.getvalue()))
    assert message_of(open_array_file, "a.npy.gz") == (
        "a.npy.gz: 5.0 GiB when decompressed; the limit is 4 GiB\n"
        "  decompress it with gunzip; a .npy file is read piece by piece"
    )


def test_tensors_of_other_types():
    save_file({"features": np.zeros((2, 2, 2), np.int64)}, "a.safetensors")
    assert message_of(ImageFeatures.open, "a.safetensors") == (
        "a.safetensors: a tensor of I64, which cannot be read\n"
        "  save it as one of F32, F16, U8, BOOL"
    )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4, 4), np.float32), "an array of float32 with shape (3, 4, 4)"),
        (np.zeros((3, 4), np.uint8), "an array of uint8 with shape (3, 4)"),
        (np.zeros((2, 3, 5, 5), np.uint8), "an array of uint8 with shape (2, 3, 5, 5)"),
        (np.zeros((0, 4, 4), np.uint8), "an array of uint8 with shape (0, 4, 4)"),
    ],
)
def test_arrays_that_are_no_sheets(array, message):
    np.save("s.npy", array)
    assert message_of(ImageArray.open, "s.npy") == (
        f"s.npy: {message} is not a sheet of images\n"
        "  save uint8 as (images, rows, columns) or (images, rows, columns, channels)"
    )


def test_palettes_and_rows_of_sheets():
    np.save("s.npy", np.zeros((3, 4, 4), np.uint8))
    np.save("c.npy", np.zeros((3, 4, 4, 3), np.uint8))
    np.save("p.npy", np.zeros((256, 3), np.uint8))
    np.save("q.npy", np.zeros((16, 3), np.uint8))
    assert message_of(ImageArray.open, "s.npy", "q.npy") == (
        "q.npy: an array of uint8 with shape (16, 3) is not a palette\n"
        "  save uint8 (256, 3): red, green and blue of each color"
    )
    assert message_of(ImageArray.open, "c.npy", "p.npy") == (
        "c.npy: has channels, but a palette needs one index per pixel\n  leave out the palette"
    )
    assert message_of(ImageArray.open("s.npy").read, [0, 3]) == (
        "s.npy: there is no row 3; rows are 0 to 2\n  give the file that the captions belong to"
    )
    save_file({"a": np.zeros(2, np.uint8), "b": np.zeros(2, np.uint8)}, "two.safetensors")
    expected = "two.safetensors: contains 2 arrays\n  give a file of one array"
    assert message_of(ImageArray.open, "two.safetensors") == expected


def test_features_without_a_grid_of_vectors():
    np.save("f.npy", np.zeros((10, 320), np.float32))
    assert message_of(ImageFeatures.open, "f.npy") == (
        "f.npy: an array of shape (10, 320), not a grid of features for each image\n"
        "  save (images, cells, channels) or (images, rows, columns, channels)"
    )
    np.save("i.npy", np.zeros((10, 4, 8), np.int32))
    assert message_of(ImageFeatures.open, "i.npy") == (
        "i.npy: an array of int32; features are float16, float32 or codes in uint8\n"
        "  convert it: numpy.save(path, array.astype(numpy.float16))"
    )
    save_file({"x": np.zeros((1, 1, 1), np.float32)}, "x.safetensors")
    assert message_of(ImageFeatures.open, "x.safetensors") == (
        "x.safetensors: no array is called 'features'\n"
        "  save the array under the name 'features'; arrays found: x"
    )
    np.save("g.npy", np.zeros((10, 4, 8), np.float32))
    assert message_of(ImageFeatures.open, "g.npy", grid=(3, 3)) == (
        "g.npy: 4 cells cannot be a grid of 3 x 3\n  correct `features_grid`"
    )
    save_file({"features": np.zeros((1, 4, 2), np.float32)}, "m.safetensors", {"grid": "2*2"})
    assert message_of(ImageFeatures.open, "m.safetensors") == (
        "m.safetensors: the grid '2*2' is not as 7x7\n  set `features_grid`"
    )


def test_codes_and_the_scale():
    np.save("f.npy", np.zeros((10, 4, 8), np.uint8))
    assert message_of(ImageFeatures.open, "f.npy") == (
        "f.npy: 8- or 4-bit codes without the steps and offsets that make numbers of them\n"
        "  name the file of steps and offsets, float32 (2, channels), with `features_scale` "
        "(`--features-scale`)"
    )
    np.save("s.npy", np.zeros((2, 7), np.float32))
    assert message_of(ImageFeatures.open, "f.npy", "s.npy") == (
        "f.npy: 8 bytes per cell are neither 7 channels of 8 bits nor of 4\n"
        "  give the steps and offsets that were written with this file"
    )
    np.save("s.npy", np.zeros((8, 2), np.float32))
    assert message_of(ImageFeatures.open, "f.npy", "s.npy") == (
        "s.npy: an array of shape (8, 2), not (2, channels): a step and an offset per channel\n"
        "  give the file that came with the features"
    )
    np.save("s.npy", np.full((2, 8), np.nan, np.float32))
    expected = "s.npy: contains NaN or infinity\n  extract the features again"
    assert message_of(ImageFeatures.open, "f.npy", "s.npy") == expected
    np.save("n.npy", np.zeros((10, 4, 8), np.float16))
    expected = "n.npy: float16 numbers need no steps and offsets\n  leave out `features_scale`"
    np.save("s.npy", np.ones((2, 8), np.float32))
    assert message_of(ImageFeatures.open, "n.npy", "s.npy") == expected


def test_rows_of_features():
    values = np.zeros((10, 4, 8), np.float32)
    values[7, 2, 3] = np.inf
    np.save("f.npy", values)
    features = ImageFeatures.open("f.npy")
    assert message_of(features.read, [1, 7]) == (
        "f.npy: row 7 contains NaN or infinity\n  extract the features of this image again"
    )
    assert message_of(features.read, [-1]) == (
        "f.npy: there is no row -1; rows are 0 to 9\n  give the file that the captions belong to"
    )


# ----- caption files


def captions(name, text, **settings):
    write(name, text.encode())
    return message_of(CaptionFileConfig(path=name, **settings).read)


COLUMNS = "give image_column and caption_column"
JSON = 'each line must be an object such as {"image": "a.jpg", "captions": ["...", "..."]}'


@pytest.mark.parametrize(
    ("name", "text", "settings", "message"),
    [
        ("c.tsv", "", {}, "c.tsv: contains no lines\n  give a file with text in it"),
        ("c.tsv", "image\tcaption\n", {}, "c.tsv: contains no captions\n  add lines"),
        (
            "c.tsv",
            "a.jpg a dog\n",
            {},
            "c.tsv:1: 1 tab-separated column, but column 2 is needed\n  "
            f"{COLUMNS}; for commas or JSON set `format: csv` or `format: jsonl`",
        ),
        (
            "c.tsv",
            "a\tb\nc\n",
            {},
            "c.tsv:2: 1 column, but line 1 has 2\n  look for lost or added "
            "tabs; a caption must not contain any",
        ),
        (
            "c.csv",
            "a,b\nc,d,e\n",
            {},
            "c.csv:2: 3 columns, but line 1 has 2\n  put captions that "
            "contain commas in quotation marks",
        ),
        ("c.tsv", "a\t\n", {}, "c.tsv:1: the caption is empty\n  add one, or remove the line"),
        (
            "c.tsv",
            " \tx\n",
            {},
            "c.tsv:1: the image is empty\n  name an image, or remove the line",
        ),
        (
            "c.tsv",
            "image\tcaption\tcaption\na\tb\tc\n",
            {},
            "c.tsv:1: two columns are called 'caption'\n"
            "  rename one, or give image_column and caption_column by number",
        ),
        (
            "c.tsv",
            "image\ttitel\na\tb\n",
            {"caption_column": "title"},
            "c.tsv:1: no column is called "
            f"'title'; did you mean 'titel'?\n  {COLUMNS}; columns found: 'image', 'titel'",
        ),
        (
            "c.tsv",
            "a\tb\n",
            {"split": "dev"},
            "c.tsv:1: a split is chosen, but no column names the "
            "split\n  give its number or its name with split_column",
        ),
        (
            "c.tsv",
            "a\ttrain\tb\n",
            {"split": "trian", "split_column": 2, "caption_column": 3},
            "c.tsv: no split is called 'trian'; did you mean 'train'?\n  choose from: train",
        ),
        ("c.jsonl", "[1]\n", {}, f"c.jsonl:1: not an object but an array\n  {JSON}"),
        (
            "c.jsonl",
            '{"image": "a", "caption": 3}\n',
            {},
            "c.jsonl:1: the value of 'caption' is a "
            f"number, not a text or an array of texts\n  {JSON}",
        ),
        (
            "c.jsonl",
            '{"image": "a", "captions": []}\n',
            {},
            "c.jsonl:1: the value of 'captions' is "
            f"an array, not a text or an array of texts\n  {JSON}",
        ),
        *(
            (
                "c.jsonl",
                f'{{"image": {value}, "caption": "x"}}\n',
                {},
                f"c.jsonl:1: the value of 'image' is {value}, not a text or a number\n  {JSON}",
            )
            for value in ("null", "true")
        ),
        (
            "c.jsonl",
            '{"picture": "a", "caption": "x"}\n',
            {},
            f"c.jsonl:1: no key is called 'image'\n  {COLUMNS}; keys found: 'caption', 'picture'",
        ),
        (
            "c.jsonl",
            '{"image": "a", "caption": "x"}\n',
            {"image_column": 1},
            "c.jsonl:1: column 1 is given by its number, but JSON has keys\n  give the key",
        ),
        (
            "c.jsonl",
            '{"image": "a", "caption": "x"}\n',
            {"split": "dev"},
            "c.jsonl:1: no key is called 'split'\n  give split_column; keys found: "
            "'caption', 'image'",
        ),
    ],
)
def test_caption_files(name, text, settings, message):
    assert captions(name, text, **settings) == message


def test_missing_images_and_folders():
    expected = "c.tsv: there is no folder 'photos'\n  name it with `images` (--images)"
    assert captions("c.tsv", "a.jpg\tx\n", images="photos") == expected
    write("b.png", image())
    write("b.jpg", image())
    assert captions("c.tsv", "a.jpg\tx\nb.png\ty\nb\tz\n") == (
        "c.tsv: 2 of 3 images missing in '.'\n"
        "  a.jpg\n"
        "  b: several images: b.jpg, b.png\n"
        "  copy them there, remove their lines, or name their folder with `images` (--images)"
    )


def test_features_that_a_run_does_not_read():
    shape = ImageShape(8, 7, 7, fit=None)
    np.save("small.npy", np.zeros((2, 9, 8), np.float32))
    assert message_of(ImageLoader(shape).expand, ["small.npy"]) == (
        "small.npy: 9 cells for each image, but this run reads 7 x 7 cells with 8 channels\n"
        "  extract features as for the training of the run"
    )
    np.save("codes.npy", np.zeros((2, 49, 8), np.uint8))
    assert message_of(ImageLoader(shape).expand, ["codes.npy"]) == (
        "codes.npy: 8- or 4-bit codes without a scale, but this run was trained on numbers\n"
        "  give float features, or a .safetensors file with codes and their scale"
    )
    scale = np.ones(8, np.float32), np.zeros(8, np.float32)
    assert ImageLoader(shape, scale).expand(["codes.npy"]) == ["codes.npy#0", "codes.npy#1"]


def test_rows_that_do_not_fit():
    np.save("f.npy", np.zeros((3, 4, 2), np.float32))
    assert captions("c.tsv", "x\ta\ny\tb\n", features="f.npy") == (
        "c.tsv: 2 images, but f.npy has 3 rows\n"
        "  choose the split that the file was made of, or number the rows in the image column"
    )
    assert captions("c.tsv", "x\ta\n5\tb\n", features="f.npy", rows="numbers") == (
        "c.tsv: not rows 0 to 2 of f.npy: 2 of 2 images\n"
        "  x\n  5\n"
        "  number the images from 0, or set `rows: order`"
    )
    assert captions("c.tsv", "x\ta\n", features="f.npy", rows="names") == (
        "f.npy: the file has no names of images\n"
        "  set `rows: order` if rows have the order of the images"
    )
    metadata = {"images": '["p/a.jpg", "p/b.jpg", "q/b.jpg"]'}
    save_file({"features": np.zeros((3, 4, 2), np.float32)}, "f.safetensors", metadata)
    assert captions("c.tsv", "a\tx\nb\ty\nc\tz\n", features="f.safetensors") == (
        "f.safetensors: has no features of 2 of 3 images, or of several so named\n"
        "  b\n  c\n"
        "  extract them with `heedful features`, or remove their lines"
    )


def test_settings_that_do_not_fit():
    source = CaptionFileConfig(path="c.tsv", palette="p.npy")
    assert message_of(source.open_images, error=ConfigError) == (
        "palette: colors are given, but images are not a sheet\n"
        "  name the sheet (.npy or .npy.gz) with `images`, or leave out `palette`"
    )
    source = CaptionFileConfig(path="c.tsv", features_scale="s.npy")
    assert message_of(source.open_images, error=ConfigError) == (
        "features_scale: given without `features`\n  name the feature file with `features`"
    )


def test_folders():
    os.mkdir("p")
    suffixes = (
        ".apng, .avif, .bmp, .dib, .gif, .heic, .heif, .j2k, .jfif, .jp2, .jpe, .jpeg, .jpg, "
    )
    suffixes += ".pbm, .pgm, .png, .pnm, .ppm, .tga, .tif, .tiff, .webp"
    expected = f"p: contains no images\n  add some: {suffixes}"
    assert message_of(ImageFolderConfig(path="p").read) == expected
    write("p/a.png", image())
    write("p/b.png", image())
    write("p/b.txt", b"\n  \n")
    assert message_of(ImageFolderConfig(path="p").read) == (
        "p: 2 of 2 images without a caption\n"
        "  a.png\n  b.png\n"
        "  add a text file beside each, with a caption per line; or set `captions: names`"
    )
    write("f", b"x")
    assert message_of(ImageFolderConfig(path="f").read) == (
        "f: this is a file, not a folder\n"
        "  name a folder of images, or give the file with `type: captions`"
    )
    assert message_of(ImageFolderConfig(path="q").read) == "q: no such folder\n  check the path"


def test_captions_option_names_a_file_or_a_folder():
    write("c.tsv", b"a.png\tx\n")
    assert FILE_OPTIONS.data_setting({"captions": "c.tsv"}) == {"type": "captions", "path": "c.tsv"}
    os.mkdir("photos")
    expected = {"type": "image-folder", "path": "photos"}
    assert FILE_OPTIONS.data_setting({"captions": "photos"}) == expected
