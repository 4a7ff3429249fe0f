import gzip

import pytest

from heedful.data.sources import SyntheticTextConfig, TextFilesConfig
from heedful.data.synthetic import get_corpus
from heedful.errors import DataError


def test_a_text_is_all_lines_of_a_file_empty_ones_too(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n  two\u2028 \r\nthree")
    lines = TextFilesConfig(path=str(tmp_path / "a.txt")).read()
    assert lines == ["one", "", "  two\u2028 \r", "three"]


def test_several_files_are_one_text(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with gzip.open(tmp_path / "b.gz", "wt") as file:
        file.write("two\n")
    source = TextFilesConfig(path=[str(tmp_path / "a.txt"), str(tmp_path / "b.gz")])
    assert source.read() == ["one", "two"]
    assert source.describe() == f"{tmp_path}/a.txt, {tmp_path}/b.gz"


def test_a_file_without_text_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n  \n")
    with pytest.raises(DataError) as caught:
        TextFilesConfig(path=str(path)).read()
    assert str(caught.value) == f"{path}: holds no text\n  give a file with text in it"


def test_bytes_that_are_not_utf_8_are_refused_with_their_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xff\n")
    with pytest.raises(DataError, match=r"a\.txt:2: byte 0xFF at column 3 is not UTF-8"):
        TextFilesConfig(path=str(path)).read()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_side_of_a_built_in_corpus_is_running_text(side):
    source = SyntheticTextConfig(name="latin", side=side, split="dev", num_examples=3, seed=1)
    pairs = get_corpus("latin").pairs("dev", seed=1)
    assert source.read() == [getattr(next(pairs), side) for _ in range(3)]
    assert source.describe() == f"built-in latin, {side}, dev, 3 lines, seed 1"
