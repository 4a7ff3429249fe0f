"""Input files of commands: lines, tables and JSON lines give one text per record."""

import gzip

import pytest

from heedful.errors import ConfigError, DataError
from heedful.tasks.text_input import TextInput
from heedful.tasks.translation.files import RequestFiles, count_lines, read_requests

FILES = {
    "lines": ("in.txt", "a,b\nc\td\n", {}, ["a,b", "c\td"]),
    "header": ("in.csv", 'id,text\n1,"a, b"\n2,\n', {}, ["a, b", ""]),
    "line break": ("in.csv", 'text\n"a\nb"\nc\n', {}, ["a\nb", "c"]),
    "languages": ("in.tsv", "de\ten\na\tb\n", {}, ["a"]),
    "no header": ("in.tsv", "a\tb\nc\td\n", {}, ["a", "c"]),
    "label first": ("in.tsv", "a\tb\nc\td\n", {"default_column": 2}, ["b", "d"]),
    "texts alone": ("in.tsv", "a\nc\n", {"default_column": 2}, ["a", "c"]),
    "number": ("in.tsv", "a\tb\nc\td\n", {"column": "2"}, ["b", "d"]),
    "name": ("in.csv", "x,la\n1,a\n", {"column": "la"}, ["a"]),
    "delimiter": ("in.csv", "x;text\n1;a,b\n", {"delimiter": ";"}, ["a,b"]),
    "source": ("in.jsonl", '{"source": "a"}\n{"source": ""}\n', {}, ["a", ""]),
    "text": ("in.jsonl", '{"id": 1, "text": "a\\nb"}\n', {}, ["a\nb"]),
    "key": ("in.ndjson", '{"x": {"la": "a"}}\n', {"column": "x.la"}, ["a"]),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_every_record_is_one_text(tmp_path, case, ending):
    name, content, options, texts = FILES[case]
    path = tmp_path / f"{name}{ending}"
    path.write_bytes(gzip.compress(content.encode()) if ending else content.encode())
    assert list(TextInput(str(path), **options).read()) == texts


@pytest.mark.parametrize("case", FILES)
def test_encoding_is_that_of_every_format(tmp_path, case):
    name, content, options, texts = FILES[case]
    path, replaced = tmp_path / name, [text.replace("a", "\u00e4") for text in texts]
    path.write_bytes(content.replace("a", "\u00e4").encode("utf-16"))
    options = {key: str(value).replace("a", "\u00e4") for key, value in options.items()}
    if "default_column" in options:
        options["default_column"] = 2
    assert list(TextInput(str(path), **options, encoding="utf-16").read()) == replaced


def test_unknown_encoding_raises(tmp_path):
    with pytest.raises(ConfigError, match="no encoding is called 'utf-9'"):
        TextInput(str(tmp_path / "in.txt"), encoding="utf-9").read()


@pytest.mark.parametrize(
    ("names", "options", "texts"),
    [
        (["label", "text"], {}, ["a", "b\nc"]),
        (["x", "y"], {"default_column": 2}, ["a", "b\nc"]),
        (["x", "y"], {"column": "x"}, ["1", "2"]),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_columns_of_texts_load(tmp_path, suffix, names, options, texts):
    pa = pytest.importorskip("pyarrow", reason="needs heedful[parquet]")
    from pyarrow import feather, parquet

    path = str(tmp_path / f"in{suffix}")
    table = pa.table(dict(zip(names, [["1", "2"], ["a", "b\nc"]], strict=True)))
    (parquet.write_table if suffix == ".parquet" else feather.write_feather)(table, path)
    assert list(TextInput(path, **options).read()) == texts


def test_columns_of_a_file_of_lines_are_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"--source-column: .* is a file of lines"):
        TextInput(str(tmp_path / "in.txt"), "2").read()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", "x,y\n1,2\n", "no column is called 'la'"),
        ("in.jsonl", '{"x": "a"}\n', "no key is called 'la'"),
    ],
)
def test_missing_column_raises_with_the_one_option(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        list(TextInput(str(path), "la").read())
    assert caught.value.hint.startswith("give --source-column; ")


def test_requests_load_from_a_table(tmp_path):
    path, targets = tmp_path / "in.csv", tmp_path / "out"
    path.write_text("id,text\n1,a\n2,b\n")
    targets.write_text("c\nd\n")
    request_files = RequestFiles(str(path), str(targets))
    assert [(item.text, item.target) for item in read_requests(request_files)] == [
        ("a", "c"),
        ("b", "d"),
    ]
    assert count_lines(request_files) is None


def test_all_input_files_have_the_encoding(tmp_path):
    for name, text in (("in", "\u00e4"), ("out", "\u00f6")):
        (tmp_path / name).write_bytes(f"{text}\n".encode("cp1252"))
    request_files = RequestFiles(str(tmp_path / "in"), str(tmp_path / "out"), encoding="cp1252")
    (request,) = read_requests(request_files)
    assert (request.text, request.target) == ("\u00e4", "\u00f6")
