"""Sources of pairs and of running text."""

import gzip
import io
import lzma
import sys

import pytest
from pydantic import TypeAdapter

from heedful.data.sources import (
    ParallelFilesConfig,
    SyntheticPairsConfig,
    SyntheticTextConfig,
    TextFilesConfig,
)
from heedful.data.synthetic import get_corpus
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import PairSourceConfig
from heedful.errors import DataError

PAIRS = [Pair("puella in horto", "the girl in the garden"), Pair("leo\ra", ""), Pair("a\0", "漢 ")]
SOURCES = "".join(f"{pair.source}\n" for pair in PAIRS).encode()
TARGETS = "".join(f"{pair.target}\n" for pair in PAIRS).encode()
PACKINGS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
each_packing = pytest.mark.parametrize("ending", PACKINGS)


@pytest.fixture
def store(tmp_path):
    def write(name, content, ending=""):
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(PACKINGS[ending](content))
        return str(path)

    return write


@pytest.fixture
def standard_input(monkeypatch):
    def feed(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


@each_packing
def test_parallel_files_load_line_by_line(store, ending):
    source, target = store("train.la", SOURCES, ending), store("train.en", TARGETS)
    assert ParallelFilesConfig(source=source, target=target).read() == PAIRS


def test_parallel_files_accept_stdin_on_one_side(store, standard_input):
    standard_input(TARGETS)
    assert ParallelFilesConfig(source=store("train.la", SOURCES), target="-").read() == PAIRS


def test_last_line_needs_no_newline(store):
    source, target = store("a", b"one\ntwo"), store("b", b"eins\nzwei\n")
    assert ParallelFilesConfig(source=source, target=target).read()[-1] == Pair("two", "zwei")


def test_broken_last_line_yields_no_pairs(store):
    source, target = store("a", b"one\n\xff\n"), store("b", b"eins\nzwei\n")
    with pytest.raises(DataError):
        ParallelFilesConfig(source=source, target=target).read()


def test_synthetic_source_yields_num_examples():
    config = SyntheticPairsConfig(name="latin", num_examples=20, seed=3)
    pairs = config.read()
    assert len(pairs) == 20
    assert all(isinstance(pair, Pair) for pair in pairs)
    assert pairs == config.read()
    assert pairs != SyntheticPairsConfig(name="latin", num_examples=20, seed=4).read()


@pytest.mark.parametrize(
    ("settings", "description"),
    [
        ({"type": "parallel-files", "source": "a.de", "target": "-"}, "a.de and standard input"),
        ({"type": "tsv", "path": "a.tsv"}, "a.tsv"),
        ({"type": "jsonl", "path": "-"}, "standard input, keys 'source' and 'target'"),
        (
            {"type": "synthetic", "name": "latin", "num_examples": 500},
            "built-in latin, train, 500 pairs, seed 0",
        ),
    ],
)
def test_source_is_selected_by_type_and_describes_itself(settings, description):
    source = TypeAdapter(PairSourceConfig).validate_python(settings)
    assert source.type == settings["type"]
    assert source.describe() == description


def test_same_file_on_both_sides_is_a_warning(store, tmp_path):
    path, link = store("a", b"one\n"), tmp_path / "link"
    link.symlink_to(path)
    warning = f"source and target are the same file, {path}: the model learns to copy"
    for other in (path, str(link)):
        assert list(ParallelFilesConfig(source=path, target=other).warnings) == [warning]
    other = ParallelFilesConfig(source=path, target=store("b", b"one\n"))
    absent = ParallelFilesConfig(source="absent", target="absent")
    assert not other.warnings
    assert not absent.warnings


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


@pytest.mark.parametrize("side", ["source", "target"])
def test_synthetic_text_is_one_side_of_corpus(side):
    source = SyntheticTextConfig(name="latin", side=side, split="dev", num_examples=3, seed=1)
    pairs = get_corpus("latin").pairs("dev", seed=1)
    assert source.read() == [getattr(next(pairs), side) for _ in range(3)]
    assert source.describe() == f"built-in latin, {side}, dev, 3 lines, seed 1"
