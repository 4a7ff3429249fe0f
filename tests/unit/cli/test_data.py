import json

import numpy as np
import pytest

from heedful.data.images.captions import CaptionFileConfig
from heedful.data.synthetic.images import generate_images
from tests.commands import heedful


def test_data_lists_corpora(capsys, monkeypatch):
    output = heedful(capsys, monkeypatch, "data").out
    assert [line.split()[0] for line in output.splitlines()] == [
        "latin",
        "arithmetic",
        "arithmetic-gaps",
        "dates",
        "copy",
        "reverse",
        "sort",
        "argsort",
        "icons",
        "formulas",
        "shapes",
        "digits",
    ]


def test_pairs_depend_only_on_the_seed(capsys, monkeypatch):
    words = ("data", "reverse", "--split", "test", "--size", "5", "--seed", "3")
    once, again = (heedful(capsys, monkeypatch, *words).out for _ in range(2))
    assert once == again
    rows = [line.split("\t") for line in once.splitlines()]
    assert len(rows) == 5
    assert all(target.split() == source.split()[::-1] for source, target in rows)


def test_pairs_printed_as_json_lines(capsys, monkeypatch):
    output = heedful(capsys, monkeypatch, "data", "dates", "--size", "2", "--format", "jsonl").out
    assert [set(json.loads(line)) for line in output.splitlines()] == [{"source", "target"}] * 2


def test_images_written_with_captions(capsys, monkeypatch, tmp_path):
    folder = tmp_path / "icons"
    words = ("data", "icons", "--split", "test", "--size", "12")
    heedful(capsys, monkeypatch, *words, "-o", folder)
    captions = heedful(capsys, monkeypatch, *words).out.splitlines()
    lines = [line.split("\t") for line in (folder / "captions.tsv").read_text().splitlines()]
    assert lines[0] == ["image", "caption"]
    assert lines[1:] == [[f"{row:02}.png", name] for row, name in enumerate(captions, start=1)]
    source = CaptionFileConfig(path=str(folder / "captions.tsv"))
    examples = source.read()
    assert [example.captions for example in examples] == [(name,) for name in captions]
    pytest.importorskip("PIL")
    images = source.open_images().read([example.image for example in examples], "L")
    expected = generate_images("icons", "test", 12, 0)[0]
    assert all(
        np.array_equal(image[:, :, 0], other) for image, other in zip(images, expected, strict=True)
    )


def test_folder_for_texts_raises(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch, "data", "latin", "-o", "x")
    assert ended.code == 2
    assert ended.err == "heedful: -o: has no effect on latin\n  leave it out\n"
