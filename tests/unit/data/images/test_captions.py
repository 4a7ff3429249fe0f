"""Sources of captioned images: formats agree, lines are grouped, nothing is lost."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save_file

from heedful.data.images.captions import CaptionedImage, CaptionFileConfig, ImageFolderConfig
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import FileListError, ImageArray, ImageFiles
from heedful.errors import DataError

LINES = [
    ("a.png", "train", "A dog runs ."),
    ("b.png", "dev", "Two boys , playing"),
    ("a.png", "train", "A brown dog"),
    ("c.png", "train", 'A "red" hat'),
]
TRAIN = [("a.png", ("A dog runs .", "A brown dog")), ("c.png", ('A "red" hat',))]


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        Image.new("L", (3, 2)).save(tmp_path / name)
    return tmp_path


def as_tsv(lines, header=False):
    rows = [("image", "split", "caption"), *lines] if header else lines
    return "".join("\t".join(row) + "\n" for row in rows)


def as_csv(lines):
    quoted = (['"' + cell.replace('"', '""') + '"' for cell in row] for row in lines)
    return "image,split,caption\n" + "".join(",".join(row) + "\n" for row in quoted)


def as_jsonl(lines):
    rows = (dict(zip(("image", "split", "caption"), row, strict=True)) for row in lines)
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path, text, **settings):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return CaptionFileConfig(path=str(path), **settings).read()


def named(examples):
    """Return the examples with file names instead of paths."""
    return [(str(image).rpartition("/")[2], captions) for image, captions in examples]


NUMBERS = {"image_column": 1, "split_column": 2, "caption_column": 3}


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("c.tsv", as_tsv(LINES), NUMBERS),
        ("c.tsv.gz", as_tsv(LINES), NUMBERS),
        ("c.tsv", as_tsv(LINES), {name: str(number) for name, number in NUMBERS.items()}),
        ("c.tsv", as_tsv(LINES, header=True), {}),
        ("c.tsv", as_tsv(LINES, header=True), {"image_column": "image", "caption_column": 3}),
        ("c.csv", as_csv(LINES), {}),
        ("c.jsonl", as_jsonl(LINES), {}),
        ("c.txt", as_csv(LINES), {"format": "csv"}),
    ],
)
def test_every_format_returns_the_same_examples(folder, name, text, settings):
    examples = read(folder / name, text, split="train", **settings)
    assert named(examples) == TRAIN
    assert all(isinstance(example, CaptionedImage) for example in examples)
    assert examples[0].image == str(folder / "a.png")
    everything = read(folder / name, text, **settings)
    assert [image for image, _ in named(everything)] == ["a.png", "b.png", "c.png"]


def test_two_columns_need_no_settings(folder):
    examples = read(folder / "c.tsv", "a.png\tone\nb.png\ttwo\na.png\tthree\n")
    assert named(examples) == [("a.png", ("one", "three")), ("b.png", ("two",))]


def test_json_may_have_several_captions_and_dotted_keys(folder):
    text = '{"file": {"name": "a.png"}, "texts": ["one", "two  words"]}\n'
    examples = read(
        folder / "c.jsonl", text, image_column="file.name", caption_column=["texts", "texts.0"]
    )
    assert named(examples) == [("a.png", ("one", "two words", "one"))]


def test_table_may_have_several_caption_columns_with_gaps(folder):
    text = "image\tfirst\tsecond\na.png\tone\ttwo\nb.png\tthree\t\n"
    examples = read(folder / "c.tsv", text, caption_column=["first", "second"])
    assert named(examples) == [("a.png", ("one", "two")), ("b.png", ("three",))]


def test_numbered_names_of_flickr8k_are_one_image(folder):
    examples = read(folder / "Flickr8k.token.txt", "a.png#0\tone\na.png#1\ttwo\n")
    assert named(examples) == [("a.png", ("one", "two"))]


def test_ids_without_suffix_and_other_spellings_name_images(folder):
    examples = read(folder / "c.tsv", "a\tone\n./a.png\ttwo\nb.png\tthree\n")
    assert named(examples) == [("a.png", ("one", "two")), ("b.png", ("three",))]


def test_images_may_be_in_another_folder(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    text = "a.png\tone\n"
    (example,) = read(elsewhere / "c.tsv", text, images=str(folder))
    assert example.image == str(folder / "a.png")
    (example,) = read(elsewhere / "c.tsv", f"{folder}/a.png\tone\n")  # absolute
    assert example.image == str(folder / "a.png")


def test_all_missing_images_listed(folder):
    text = as_tsv([(f"x{row}.png", "train", "c") for row in range(500)] + LINES)
    with pytest.raises(FileListError) as error:
        read(folder / "c.tsv", text, **NUMBERS)
    assert len(error.value.problems) == 500
    lines = str(error.value).splitlines()
    assert lines[0] == f"{folder}/c.tsv: 500 of 503 images missing in '{folder}'"
    assert lines[1:-1] == [f"  x{row}.png" for row in range(500)]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.text(st.sampled_from("ab c"), max_size=6).map("x".__add__)),
        min_size=1,
        max_size=12,
    )
)
def test_every_caption_is_in_exactly_one_example(tmp_path_factory, lines):
    folder = tmp_path_factory.getbasetemp()
    array = np.zeros((5, 2, 2), np.uint8)
    np.save(folder / "sheet.npy", array)
    text = "".join(f"{image}\t{caption}\n" for image, caption in lines)
    examples = read(folder / "l.tsv", text, images=str(folder / "sheet.npy"), rows="numbers")
    grouped = [(image, caption) for image, captions in examples for caption in captions]
    expected = [(image, " ".join(caption.split())) for image, caption in lines]
    assert sorted(grouped) == sorted(expected)
    assert len({image for image, _ in examples}) == len(examples)


# ----- rows of sheets and feature files


def sheet(folder, count=6):
    np.save(folder / "s.npy", np.zeros((count, 4, 4), np.uint8))
    return str(folder / "s.npy")


def features(folder, count=6, names=()):
    metadata = {"images": json.dumps(names)} if names else {}
    save_file({"features": np.ones((count, 4, 2), np.float32)}, folder / "f.safetensors", metadata)
    return str(folder / "f.safetensors")


def test_numbers_of_rows_found_in_a_sheet(tmp_path):
    text = "index\tname\n4\tfour\n0\tzero\n"
    source = {"images": sheet(tmp_path)}
    assert read(tmp_path / "n.tsv", text, **source) == [(4, ("four",)), (0, ("zero",))]
    config = CaptionFileConfig(path=str(tmp_path / "n.tsv"), **source)
    assert isinstance(config.open_images(), ImageArray)
    assert config.paths == [str(tmp_path / "n.tsv"), source["images"]]


def test_ids_have_the_order_of_the_rows(tmp_path):
    text = as_tsv([("id7", "dev", "x"), ("id9", "train", "y"), ("id8", "dev", "z")])
    settings = {"features": features(tmp_path, 2), "split": "dev", **NUMBERS}
    assert read(tmp_path / "c.tsv", text, **settings) == [(0, ("x",)), (1, ("z",))]
    with pytest.raises(DataError, match=r"1 image, but .* has 2 rows"):
        read(tmp_path / "c.tsv", text, **{**settings, "split": "train"})


def test_large_numbers_are_ids_in_order(tmp_path):
    text = "391895\tx\n1\ty\n"
    assert read(tmp_path / "c.tsv", text, features=features(tmp_path, 2))[0].image == 0
    with pytest.raises(FileListError, match=": 1 of 2 images"):
        read(tmp_path / "c.tsv", text, features=features(tmp_path, 2), rows="numbers")


def test_names_in_a_feature_file_find_rows_in_any_order(tmp_path):
    stored = ["p/a.jpg", "p/b.jpg", "q/b.jpg", "q/c.png"]
    source = {"features": features(tmp_path, 4, stored)}
    text = "c\tone\nq/b.jpg\ttwo\na.jpg\tthree\n"
    assert [row for row, _ in read(tmp_path / "c.tsv", text, **source)] == [3, 2, 0]
    with pytest.raises(FileListError) as error:  # there are two b.jpg
        read(tmp_path / "c.tsv", "a.jpg\tx\nb.jpg\ty\nzz\tz\n", **source)
    assert error.value.problems == ("b.jpg", "zz")


def test_features_replace_images(tmp_path):
    config = CaptionFileConfig(path="none.tsv", features=features(tmp_path))
    store = config.open_images()
    assert isinstance(store, ImageFeatures)
    assert isinstance(CaptionFileConfig(path="none.tsv").open_images(), ImageFiles)


# ----- folders


def test_folder_with_text_files(folder):
    for name, text in (("a", "one\n\n  two   words \n"), ("b", "three"), ("c", "four\n")):
        (folder / f"{name}.txt").write_text(text)
    examples = ImageFolderConfig(path=str(folder)).read()
    expected = [("a.png", ("one", "two words")), ("b.png", ("three",)), ("c.png", ("four",))]
    assert named(examples) == expected


def test_folder_whose_names_are_captions(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("red-hat.PNG", "deep/blue_sea wave.jpg", ".hidden.png", "notes.md"):
        Image.new("RGB", (2, 2)).save(tmp_path / name, "PNG")
    examples = ImageFolderConfig(path=str(tmp_path), captions="names").read()
    assert [captions for _, captions in examples] == [("blue sea wave",), ("red hat",)]
    assert examples[0].image == str(tmp_path / "deep" / "blue_sea wave.jpg")


def test_folder_with_features_by_name(folder):
    settings = {"features": features(folder, 3, ["x/c.png", "x/a.png", "x/b.png"])}
    examples = ImageFolderConfig(path=str(folder), captions="names", **settings).read()
    assert examples == [(1, ("a",)), (2, ("b",)), (0, ("c",))]


# ----- real data


@pytest.mark.wide
def test_flickr8k_loads_whole(heedful_data):
    folder = heedful_data / "flickr8k"
    for split, count in (("train", 6000), ("dev", 1000), ("test", 1000)):
        examples = CaptionFileConfig(
            path=str(folder / "captions.tsv.gz"),
            **NUMBERS,
            split=split,
            features=str(folder / f"features_{split}.npy"),
            features_scale=str(folder / "features_scale.npy"),
        ).read()
        assert [example.image for example in examples] == list(range(count))
        assert {len(example.captions) for example in examples} == {5}


def test_icons_and_emoji_load_by_index(heedful_data):
    icons = heedful_data / "icons"
    examples = CaptionFileConfig(
        path=str(icons / "names.tsv"), split="test", images=str(icons / "icons48.npy.gz")
    ).read()
    assert len(examples) == 633
    assert examples[0] == (25, ("account badge",))
    emoji = heedful_data / "emoji"
    config = CaptionFileConfig(
        path=str(emoji / "names.tsv"),
        images=str(emoji / "emoji32.npy.gz"),
        palette=str(emoji / "palette.npy"),
    )
    assert len(config.read()) == 3486
    assert config.open_images().read([0])[0].shape == (32, 32, 3)
