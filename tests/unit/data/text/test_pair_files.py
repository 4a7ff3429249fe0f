"""Files of pairs: the same examples in every format, compressed or not."""

import csv
import gzip
import io
import json
import lzma
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import (
    CSVConfig,
    JSONLConfig,
    PairSourceConfig,
    ParquetConfig,
    TSVConfig,
)
from heedful.errors import DataError

PAIRS = [Pair("puella in horto", "the girl in the garden"), Pair("leo\ra", ""), Pair("a\0", "漢 ")]
PACKINGS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def as_csv(rows, **options):
    file = io.StringIO(newline="")
    csv.writer(file, **options).writerows(rows)
    return file.getvalue().encode()


def as_tsv(rows, ending="\n"):
    return "".join("\t".join(row) + ending for row in rows).encode()


def as_jsonl(rows, names=("source", "target")):
    records = [dict(zip(names, row, strict=True)) for row in rows]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


FORMATS = {CSVConfig: as_csv, TSVConfig: as_tsv, JSONLConfig: as_jsonl}


@pytest.fixture
def store(tmp_path):
    def write(content, name="pairs", ending=""):
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(PACKINGS[ending](content))
        return str(path)

    return write


@pytest.mark.parametrize("ending", PACKINGS)
@pytest.mark.parametrize("config", FORMATS)
def test_formats_hold_the_same_pairs(store, config, ending):
    path = store(FORMATS[config](PAIRS), ending=ending)
    assert config(path=path).read() == PAIRS


@pytest.mark.parametrize("config", FORMATS)
def test_formats_load_from_stdin(monkeypatch, config):
    stdin = io.TextIOWrapper(io.BytesIO(FORMATS[config](PAIRS)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert config(path="-").read() == PAIRS


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\ufeff"))


@given(pairs=st.lists(st.builds(Pair, texts, texts), min_size=1), ending=st.sampled_from("nr"))
def test_csv_round_trip_equals_input(tmp_path_factory, pairs, ending):
    path = tmp_path_factory.mktemp("csv") / "pairs.csv"
    line_end = {"n": "\n", "r": "\r\n"}[ending]
    content = as_csv(pairs, quoting=csv.QUOTE_ALL, lineterminator=line_end)
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert CSVConfig(path=str(path), header=False).read() == pairs


@pytest.mark.parametrize("columns", [("fr", "en"), (3, 2), ("fr", 2)])
@pytest.mark.parametrize(("config", "as_bytes"), [(CSVConfig, as_csv), (TSVConfig, as_tsv)])
def test_columns_have_names_and_numbers(store, config, as_bytes, columns):
    rows = [["id", "en", "fr"], ["1", "yes", "oui"], ["2", 'the "girl"', "fille"]]
    source, target = columns
    header = {} if "fr" in columns else {"header": True}
    settings = {"source_column": source, "target_column": target, **header}
    read = config(path=store(as_bytes(rows)), **settings)
    assert read.read() == [Pair("oui", "yes"), Pair("fille", 'the "girl"')]
    name = {CSVConfig: "row", TSVConfig: "line"}[config]
    assert read.locate(1) == f"{read.path}, {name} 3"


def test_csv_has_other_delimiters(store):
    path = store(as_csv(PAIRS, delimiter=";"))
    assert CSVConfig(path=path, delimiter=";").read() == PAIRS


ROWS = [["nice", "pos"], ["boring", "neg"]]
TEXTS = [Pair(*row) for row in ROWS]


@pytest.mark.parametrize("names", [["source", "target"], ["Text", "Label"], ["de", "en-US"]])
def test_usual_header_is_not_a_pair(store, names):
    config = CSVConfig(path=store(as_csv([names, *ROWS])))
    assert config.read() == TEXTS
    assert config.locate(0).endswith("row 2")
    (warning,) = config.warnings
    assert f"the first line names the columns {names[0]!r} and {names[1]!r}" in warning
    assert CSVConfig(path=config.path, header=False).read() == [Pair(*names), *TEXTS]


def test_named_columns_found_in_any_order(store):
    rows = [["label", "id", "text"], *([label, "1", text] for text, label in ROWS)]
    assert TSVConfig(path=store(as_tsv(rows))).read() == TEXTS


def test_first_pair_is_not_a_header(store):
    config = CSVConfig(path=store(as_csv([["label", "the label"], ["no", "no"]])))
    assert config.read() == [Pair("label", "the label"), Pair("no", "no")]
    assert config.warnings == ()


def test_label_as_source_raises(store):
    path = store(as_csv([["text", "label"], *ROWS]))
    with pytest.raises(DataError) as caught:
        CSVConfig(path=path, source_column=2, target_column=1).read()
    assert str(caught.value) == (
        f"{path}:1: the first line calls column 2 'label' and column 1 'text'\n"
        "  give --source-column and --target-column by name"
    )


@pytest.mark.parametrize("header", [["text", "label"], ["label", "text"], None])
def test_labeled_files_load_with_and_without_a_header(store, header):
    from heedful.tasks.classification.command import FILE_OPTIONS

    order = (0, 1) if header == ["text", "label"] else (1, 0)
    rows = [[row[index] for index in order] for row in ROWS]
    path = store(as_tsv([*([header] if header else []), *rows]))
    setting = FILE_OPTIONS.data_setting({"labeled": path})
    assert TypeAdapter(PairSourceConfig).validate_python(setting).read() == TEXTS


def test_encoding_and_delimiter_are_options(store):
    from heedful.tasks.command_line import PARALLEL_FILES

    path = store("caf\u00e9;\u201cyes\u201d\n".encode("cp1252"))
    files = {"pairs": path, "encoding": "cp1252", "delimiter": ";"}
    setting = PARALLEL_FILES.data_setting(files)
    assert TypeAdapter(PairSourceConfig).validate_python(setting).read() == [
        Pair("caf\u00e9", "\u201cyes\u201d")
    ]
    with pytest.raises(DataError) as caught:
        CSVConfig(path=path, encoding="cp1252").read()
    assert caught.value.hint == "give --delimiter ';' if that separates the columns"


def test_blank_lines_at_the_end_of_csv_are_no_rows(store):
    assert CSVConfig(path=store(b"a,b\n\n\n")).read() == [Pair("a", "b")]


def test_json_keys_may_be_nested(store):
    line = b'{"id": 1, "translation": {"fr": "oui", "en": "a\\nb"}, "de.at": "ja"}\n'
    columns = {"source_column": "translation.fr", "target_column": "translation.en"}
    assert JSONLConfig(path=store(line), **columns).read() == [Pair("oui", "a\nb")]
    columns = {"source_column": "de.at", "target_column": "translation.en"}
    assert JSONLConfig(path=store(line), **columns).read() == [Pair("ja", "a\nb")]


def test_json_arrays_indexed_or_joined(store):
    path = store(b'{"source": ["One.", "Two."], "target": ["first", "second"], "empty": []}\n')
    assert JSONLConfig(path=path, target_column="target.1").read() == [Pair("One. Two.", "second")]
    assert JSONLConfig(path=path, source_column="empty").read() == [Pair("", "first second")]


def test_jsonl_accepts_newlines_and_paired_surrogates(store):
    path = store(b'{"source": "a\\nb", "target": "\\ud83d\\ude00"}\n')
    assert JSONLConfig(path=path).read() == [Pair("a\nb", "\U0001f600")]


@pytest.mark.parametrize("config", FORMATS)
def test_pairs_before_a_broken_line_streamed(store, config):
    stream = config(path=store(FORMATS[config](PAIRS) + b"\xff\n")).stream()
    assert next(stream) == PAIRS[0]


@pytest.mark.extras
@pytest.mark.parametrize("ending", PACKINGS)
def test_parquet_holds_the_same_pairs(tmp_path, store, ending):
    import pyarrow as pa
    import pyarrow.parquet as pq

    sources, targets = ([pair[side] for pair in PAIRS] for side in (0, 1))
    nested = [{"fr": source, "en": target} for source, target in PAIRS]
    columns = {"id": [1, 2, 3], "source": sources, "target": targets, "translation": nested}
    pq.write_table(pa.table(columns), tmp_path / "plain", row_group_size=2)
    path = store((tmp_path / "plain").read_bytes(), "pairs.parquet", ending)
    nested_names = {"source_column": "translation.fr", "target_column": "translation.en"}
    for settings in ({}, {"source_column": 2, "target_column": 3}, nested_names):
        assert ParquetConfig(path=path, **settings).read() == PAIRS
