import gzip

import pytest

from heedful.data.sources import SyntheticTextConfig, TextFilesConfig
from heedful.data.synthetic import get_corpus
from heedful.errors import DataError


def test_text_file_keeps_empty_lines(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n  two\u2028 \r\nthree")
    lines = TextFilesConfig(path=str(tmp_path / "a.txt")).read()
    assert lines == ["one", "", "  two\u2028 ", "three"]


def test_text_files_concatenated(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with gzip.open(tmp_path / "b.gz", "wt") as file:
        file.write("two\n")
    source = TextFilesConfig(path=[str(tmp_path / "a.txt"), str(tmp_path / "b.gz")])
    assert source.read() == ["one", "two"]
    assert source.describe() == f"{tmp_path}/a.txt, {tmp_path}/b.gz"


def test_file_without_text_raises(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n  \n")
    with pytest.raises(DataError) as caught:
        TextFilesConfig(path=str(path)).read()
    assert str(caught.value) == f"{path}: contains no text\n  give a file with text in it"


def test_invalid_utf8_raises_with_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xff\n")
    with pytest.raises(DataError, match=r"a\.txt:2: byte 0xFF at column 3 is not UTF-8"):
        TextFilesConfig(path=str(path)).read()


@pytest.mark.parametrize("side", ["source", "target"])
def test_synthetic_text_is_one_side_of_corpus(side):
    source = SyntheticTextConfig(name="latin", side=side, split="dev", num_examples=3, seed=1)
    pairs = get_corpus("latin").pairs("dev", seed=1)
    assert source.read() == [getattr(next(pairs), side) for _ in range(3)]
    assert source.describe() == f"built-in latin, {side}, dev, 3 lines, seed 1"
