import gzip
import io
import json
import lzma
import sys

import pytest
from pydantic import TypeAdapter

from heedful.data.pair_dataset import Pair
from heedful.data.sources import (
    JSONLConfig,
    PairSourceConfig,
    ParallelFilesConfig,
    SyntheticPairsConfig,
    TSVConfig,
)
from heedful.errors import DataError

PAIRS = [Pair("puella in horto", "the girl in the garden"), Pair("leo\r", ""), Pair("a\0", "漢 ")]
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
def test_parallel_files_are_read_line_by_line(store, ending):
    source, target = store("train.la", SOURCES, ending), store("train.en", TARGETS)
    assert ParallelFilesConfig(source=source, target=target).read() == PAIRS


def test_parallel_files_accept_stdin_on_one_side(store, standard_input):
    standard_input(TARGETS)
    assert ParallelFilesConfig(source=store("train.la", SOURCES), target="-").read() == PAIRS


@each_packing
def test_tsv_reads_columns(store, ending):
    content = "".join(f"{each.source}\t{each.target}\n" for each in PAIRS).encode()
    assert TSVConfig(path=store("train.tsv", content, ending)).read() == PAIRS


def test_tsv_columns_are_one_based(store):
    path = store("train.tsv", b'1\tthe "girl"\tpuella\n2\t\tleo\n')
    config = TSVConfig(path=path, source_column=3, target_column=2)
    assert config.read() == [Pair("puella", 'the "girl"'), Pair("leo", "")]


def test_tsv_header_is_skipped(store):
    path = store("train.tsv", b"latin\tenglish\npuella\tgirl\n")
    assert TSVConfig(path=path, header=True).read() == [Pair("puella", "girl")]


@each_packing
@pytest.mark.parametrize("ascii_only", [True, False])
def test_jsonl_reads_keys(store, ending, ascii_only):
    records = [{"la": each.source, "en": each.target, "other": [1, None]} for each in PAIRS]
    lines = [json.dumps(record, ensure_ascii=ascii_only) + "\n" for record in records]
    path = store("train.jsonl", "".join(lines).encode(), ending)
    assert JSONLConfig(path=path, source_key="la", target_key="en").read() == PAIRS


def test_jsonl_accepts_newlines_and_paired_surrogates(store):
    path = store("train.jsonl", b'{"source": "a\\nb", "target": "\\ud83d\\ude00"}\n')
    assert JSONLConfig(path=path).read() == [Pair("a\nb", "\U0001f600")]


@pytest.mark.parametrize("kind", [TSVConfig, JSONLConfig])
def test_sources_read_stdin(standard_input, kind):
    standard_input({TSVConfig: b"a\tb\n", JSONLConfig: b'{"source":"a","target":"b"}\n'}[kind])
    assert kind(path="-").read() == [Pair("a", "b")]


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
        ({"type": "tsv", "path": "a.tsv"}, "a.tsv, columns 1 and 2"),
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
