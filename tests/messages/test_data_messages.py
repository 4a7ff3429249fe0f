"""The full text of every error that texts and data files can cause."""

import gzip
import io
import lzma
import os
import sys
from random import Random

import pytest

from heedful.data.sources import ParallelFilesConfig, SyntheticPairsConfig
from heedful.data.text.filtering import (
    ChunkFilter,
    FilterConfig,
    check_not_empty,
    compute_filter_reasons,
    make_report,
)
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import CSVConfig, JSONLConfig, ParquetConfig, TSVConfig
from heedful.data.text_files import read_lines
from heedful.errors import ConfigError, CorruptRunError, DataError, HeedfulError
from heedful.tokenization import vocabulary
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from tests.commands import without_privileges


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, content):
    with open(name, "wb") as file:
        file.write(content)
    return name


def message(action, kind=DataError):
    with pytest.raises(HeedfulError) as caught:
        action()
    assert type(caught.value) is kind
    return str(caught.value)


def message_of_lines(path):
    return message(lambda: list(read_lines(path)))


def message_of_files(source, target):
    return message(ParallelFilesConfig(source=source, target=target).read)


# --- files that cannot be read -------------------------------------------------------------


def test_missing_file_suggests_nearest_name():
    write("train.de", b"a\n")
    assert message_of_lines("train.ed") == (
        "train.ed: no such file; did you mean 'train.de'?\n  check the path"
    )


def test_missing_file_without_near_name():
    write("train.de", b"a\n")
    assert message_of_lines("corpus.gz") == "corpus.gz: no such file\n  check the path"


def test_missing_file_in_unlistable_folder(in_empty_folder):
    (in_empty_folder / "data").mkdir()
    os.chmod("data", 0o111)
    with without_privileges():
        found = message_of_lines("data/train.de")
    os.chmod("data", 0o755)
    assert found == "data/train.de: no such file\n  check the path"


def test_missing_folder():
    assert message_of_lines("data/train.de") == (
        "data/train.de: there is no folder 'data'\n  check the path"
    )


def test_folder_given_as_file(in_empty_folder):
    (in_empty_folder / "data").mkdir()
    assert message_of_lines("data") == "data: this is a folder, not a file\n  name a file in it"


def test_file_without_read_permission():
    os.chmod(write("train.de", b"a\n"), 0)
    with without_privileges():
        found = message_of_lines("train.de")
    assert found == "train.de: no permission to read it\n  try `chmod u+r train.de`"


def test_path_too_long():
    assert message_of_lines("a" * 300) == (
        f"{'a' * 300}: cannot be read (File name too long)\n  check the path and the disk"
    )


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_truncated_or_corrupt_archive(ending, pack):
    name, lines = f"train.{ending}", Random(0).randbytes(10**5).hex().encode()
    packed = pack(b"a\nb\n" + lines)
    expected = (
        f"{name}: cannot be decompressed beyond line 2: corrupt, truncated, or not {ending} data\n"
        "  copy or download the file again"
    )
    write(name, packed[:-50])
    assert message_of_lines(name) == expected
    write(name, b"only text\n")
    assert message_of_lines(name) == expected.replace("line 2", "line 0")
    half = len(packed) // 2
    write(name, packed[:half] + bytes(64) + packed[half + 64 :])
    assert "corrupt, truncated, or not" in message_of_lines(name)


# --- text that is not UTF-8 ----------------------------------------------------------------


def test_invalid_utf8_is_reported_by_line_and_column():
    write("train.de", "gut\n漢 \u00e9t".encode() + "\u00e9\n".encode("latin1"))
    assert message_of_lines("train.de") == (
        "train.de:2: byte 0xE9 at column 5 is not UTF-8\n"
        "  convert the text to UTF-8, for example with `iconv -f cp1252 -t utf-8`; for "
        "data and texts also with --encoding cp1252"
    )


def test_encoded_surrogates_are_invalid_utf8():
    write("train.de", b"\xed\xa0\x80\n")
    assert message_of_lines("train.de").startswith("train.de:1: byte 0xED at column 1 is not UTF-8")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_recognized(encoding):
    write("train.de", "\ufeffgut\n".encode(encoding))
    assert message_of_lines("train.de") == (
        "train.de: the file is UTF-16, not UTF-8\n"
        "  convert the text to UTF-8, for example with `iconv -f utf-16 -t utf-8`; for "
        "data and texts also with --encoding utf-16"
    )


def test_stdin_is_named_in_errors(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n")))
    assert message_of_lines("-").startswith("standard input:2: byte 0xFF at column 1")


# --- pairs that do not fit -----------------------------------------------------------------


def test_line_counts_differ():
    write("train.de", b"a\n" * 29000)
    write("train.en", b"a\n" * 28999)
    assert message_of_files("train.de", "train.en") == (
        "train.de: 29,000 lines, but train.en has 28,999\n"
        "  line n of one must belong to line n of the other: look for lost or added lines"
    )


def test_file_without_lines():
    write("train.de", b"a\n")
    write("train.en", b"")
    expected = "train.en: contains no lines\n  give a file with text in it"
    assert message_of_files("train.de", "train.en") == expected
    assert message(TSVConfig(path="train.en").read) == expected
    assert message(JSONLConfig(path="train.en").read) == expected


def test_stdin_on_both_sides():
    assert message(lambda: ParallelFilesConfig(source="-", target="-"), ConfigError) == (
        "source, target: both are '-', but standard input can only be one of them\n"
        "  name a file for one side, or send both as columns: {type: tsv, path: '-'}"
    )


def test_tsv_line_with_different_number_of_columns():
    write("train.tsv", b"a\tb\na\tb\tc\n")
    assert message(TSVConfig(path="train.tsv").read) == (
        "train.tsv:2: 3 tab-separated columns, but line 1 has 2\n"
        "  look for lost or added tabs; a text must not contain any"
    )
    write("train.tsv", b"a\tb\na b\n")
    assert message(TSVConfig(path="train.tsv").read) == (
        "train.tsv:2: 1 tab-separated column, but line 1 has 2\n"
        "  look for lost or added tabs; a text must not contain any"
    )


def test_tsv_missing_column():
    write("train.tsv", b"a\tb\n")
    assert message(TSVConfig(path="train.tsv", target_column=4).read) == (
        "train.tsv:1: 2 tab-separated columns, but column 4 is needed\n"
        "  give --source-column and --target-column, or look for lost or added tabs; a text must "
        "not contain any"
    )


def test_tsv_with_more_columns_than_expected():
    write("train.tsv", b"animal\t17\tthe cat\n")
    config = TSVConfig(path="train.tsv", source_column=2, target_column=1, num_columns=2)
    assert message(config.read) == (
        "train.tsv:1: 3 tab-separated columns, but 2 are expected\n"
        "  name the two that count with --source-column and --target-column"
    )
    write("train.tsv", b"animal\n")
    assert message(config.read) == (
        "train.tsv:1: 1 tab-separated column, but column 2 is needed\n"
        "  give --source-column and --target-column, or look for lost or added tabs; a text must "
        "not contain any"
    )


def test_tsv_with_only_a_header():
    write("train.tsv", b"a\tb\n")
    assert message(TSVConfig(path="train.tsv", header=True).read) == (
        "train.tsv: contains only a header\n  set `header: false`, or add lines"
    )


@pytest.mark.parametrize("config", [TSVConfig, CSVConfig])
def test_two_columns_of_one_name(config):
    write("train", "de en de\na b c\n".replace(" ", "\t" if config is TSVConfig else ",").encode())
    names = {"source_column": "de", "target_column": "en"}
    assert message(config(path="train", **names).read) == (
        "train:1: two columns are called 'de'\n"
        "  rename one, or give --source-column and --target-column by number"
    )
    numbers = {"source_column": 3, "target_column": 2, "header": True}
    assert config(path="train", **numbers).read() == [("c", "b")]


@pytest.mark.parametrize("config", [TSVConfig, CSVConfig])
def test_missing_column_name(config):
    write("train", b"french\tenglish\n" if config is TSVConfig else b"french,english\n")
    assert message(config(path="train", source_column="frensh").read) == (
        "train:1: no column is called 'frensh'; did you mean 'french'?\n"
        "  give --source-column and --target-column; columns found: 'french', 'english'"
    )


@pytest.mark.parametrize("row", [b"a,b,c", b"", b"a;b"])
def test_csv_row_with_different_number_of_columns(row):
    write("train.csv", b'"two\r\nlines",b\r\n' + row + b"\r\nc,d\r\n")
    count = 3 if row.startswith(b"a,") else int(bool(row))
    assert message(CSVConfig(path="train.csv").read) == (
        f"train.csv:3: {count} comma-separated column{'s' if count != 1 else ''}, but line 1 has "
        "2\n  put texts that contain commas in quotation marks; another separator: "
        "--delimiter ';'"
    )


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b'a,b\n"two\nlines",b\nc,"d\ne,f\n', 4, "unexpected end of data"),
        (b'a,b\nc,"d" e"\nf,g\n', 2, "',' expected after '\"'"),
        (b'a,b\n"' + b"c,d\n" * 40000, 2, "field larger than field limit (131072)"),
    ],
)
def test_csv_with_unbalanced_quotes(content, line, reason):
    write("train.csv", content)
    assert message(CSVConfig(path="train.csv").read) == (
        f"train.csv:{line}: unbalanced quotation marks in the row that starts here ({reason})\n"
        '  write quotation marks inside a text twice, as in """Yes"", she said."'
    )


@pytest.mark.parametrize("config", [TSVConfig, CSVConfig, JSONLConfig])
def test_empty_and_binary_files_of_pairs(config):
    write("train", b"")
    assert message(config(path="train").read) == (
        "train: contains no lines\n  give a file with text in it"
    )
    write("train", b"\xe9")
    assert message(config(path="train").read).startswith(
        "train:1: byte 0xE9 at column 1 is not UTF-8\n"
    )


def test_parquet_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert message(ParquetConfig(path="train.parquet").read) == (
        "train.parquet: reading Parquet needs the package pyarrow\n"
        "  install it with: pip install 'heedful[parquet]'"
    )


@pytest.mark.extras
def test_parquet_with_other_contents():
    import pyarrow as pa
    import pyarrow.parquet as pq

    def message_of_table(columns, **settings):
        pq.write_table(pa.table(columns), "train.parquet")
        return message(ParquetConfig(path="train.parquet", **settings).read)

    table = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["source", "target", "target"])
    assert message_of_table(table) == "train.parquet: two columns are called 'target'\n  rename one"
    texts = {"source": ["a", "b"], "target": ["c", None], "id": [1, 2], "raw": [b"a", b"b"]}
    found = "\n  give --source-column and --target-column; columns found: "
    found += "'source', 'target', 'id', 'raw'"
    convert = "\n  every value must be a text; convert or remove the others"
    assert message_of_table(texts, source_column="sourc") == (
        f"train.parquet: no column is called 'sourc'; did you mean 'source'?{found}"
    )
    assert message_of_table(texts, source_column=5) == (
        f"train.parquet: there is no column 5{found}"
    )
    assert message_of_table(texts) == (
        f"train.parquet, row 2: the value of 'target' is null, not a string{convert}"
    )
    assert message_of_table(texts, source_column=3) == (
        f"train.parquet, row 1: the value of 'id' is a number, not a string{convert}"
    )
    assert message_of_table(texts, source_column=4) == (
        f"train.parquet, row 1: the value of 'raw' is bytes, not a string{convert}"
    )
    assert message_of_table({"source": pa.array([], pa.string()), "target": []}) == (
        "train.parquet: contains no rows\n  give a file with text in it"
    )
    write("train.parquet", b"a\tb\n")
    assert message(ParquetConfig(path="train.parquet").read).startswith(
        "train.parquet: cannot be read as Parquet ("
    )
    assert message(ParquetConfig(path="absent.parquet").read).startswith(
        "absent.parquet: no such file"
    )


def message_of_json(line, **columns):
    first = b'{"source": "a", "target": "b"}\n'
    write("train.jsonl", (b"" if columns else first) + line + b"\n")
    return message(JSONLConfig(path="train.jsonl", **columns).read)


EXAMPLE_HINT = 'each line must be an object such as {"source": "...", "target": "..."}'


def test_jsonl_invalid_json():
    assert message_of_json(b'{"source": }') == (
        f"train.jsonl:2: not JSON at column 12: Expecting value\n  {EXAMPLE_HINT}"
    )
    assert message_of_json(b"") == (
        f"train.jsonl:2: not JSON at column 1: Expecting value\n  {EXAMPLE_HINT}"
    )


@pytest.mark.parametrize("line", [b"[" * 10**5, b'{"source": ' + b"1" * 5000 + b"}"])
def test_jsonl_json_with_long_number_or_deep_nesting(line):
    assert message_of_json(line) == (
        f"train.jsonl:2: JSON with a number too long, or nested too deep\n  {EXAMPLE_HINT}"
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"[]", "an array"),
        (b'"a"', "a string"),
        (b"1.5", "a number"),
        (b"null", "null"),
        (b"true", "true"),
        (b"false", "false"),
    ],
)
def test_jsonl_line_is_not_an_object(line, found):
    assert message_of_json(line) == f"train.jsonl:2: not an object but {found}\n  {EXAMPLE_HINT}"


def test_jsonl_missing_key_suggests_nearest():
    assert message_of_json(b'{"source": "a", "targets": "b"}') == (
        "train.jsonl:2: no key is called 'target'; did you mean 'targets'?\n"
        "  give --source-column and --target-column; keys found: 'source', 'targets'"
    )
    assert message_of_json(b"{}") == (
        "train.jsonl:2: no key is called 'source'\n"
        "  give --source-column and --target-column; keys found: none"
    )


def test_jsonl_value_is_not_a_string():
    assert message_of_json(b'{"source": "a", "target": 5}') == (
        "train.jsonl:2: the value of 'target' is a number, not a string\n"
        "  every value must be a text; convert or remove the others"
    )


def test_jsonl_array_has_no_such_text():
    assert message_of_json(b'{"source": ["a", 5], "target": "b"}') == (
        "train.jsonl:2: the value of 'source' is an array, not a string\n"
        "  every value must be a text; convert or remove the others"
    )
    assert message_of_json(b'{"source": "a", "target": ["b", "c"]}', target_column="target.2") == (
        "train.jsonl:1: no key is called 'target.2'\n"
        "  give --source-column and --target-column; keys found: '0', '1'"
    )


def test_jsonl_lone_surrogate():
    assert message_of_json(b'{"source": "ab\\ud800", "target": "b"}') == (
        "train.jsonl:2, source: character 3 is U+D800, half of a surrogate pair, "
        "which is not valid text\n"
        "  remove it, or decode the text again from its bytes"
    )


def test_unknown_synthetic_corpus():
    assert message(SyntheticPairsConfig(name="latn", num_examples=5).read).startswith(
        "corpus: no built-in corpus is called 'latn'; did you mean 'latin'?\n  choose from: "
    )


# --- filtering -----------------------------------------------------------------------------


def message_of_filtering(pairs, **settings):
    pairs = [Pair(*pair) for pair in pairs]
    ids = [[[4] * len(pair[side]) for pair in pairs] for side in (0, 1)]
    config = FilterConfig(**settings)

    def filter_pairs():
        chunk = ChunkFilter(config, lambda row: f"train.tsv:{row + 1}")
        reasons = compute_filter_reasons(pairs, *ids, chunk)
        check_not_empty(make_report(reasons, chunk), location="train.tsv")

    return message(filter_pairs)


def test_all_pairs_filtered_out():
    assert message_of_filtering([("", "b"), ("abc", "a"), ("a", "abc")], max_length=2) == (
        "train.tsv: nothing is left of 3 pairs: 1 with an empty side, "
        "2 with more than 2 tokens on a side\n"
        "  raise max_length, or give other data"
    )


@pytest.mark.parametrize(("pair", "side"), [((" ", "b"), "source"), (("a", ""), "target")])
def test_on_empty_error(pair, side):
    assert message_of_filtering([("a", "b"), pair], on_empty="error") == (
        f"train.tsv:2: the {side} is empty\n  fix the pair, or set `on_empty: drop`"
    )


@pytest.mark.parametrize(("pair", "side"), [(("abc", "b"), "source"), (("a", "abc"), "target")])
def test_on_too_long_error(pair, side):
    assert message_of_filtering([("a", "b"), pair], on_too_long="error", max_length=2) == (
        f"train.tsv:2: the {side} has 3 tokens, more than max_length (2)\n"
        "  raise max_length, shorten the pair, or set `on_too_long: drop`"
    )


# --- tokenizers ----------------------------------------------------------------------------


def test_lone_surrogate_in_text():
    tokenizer = WordTokenizerConfig().train(["a"])
    assert message(lambda: tokenizer.encode("ab\udc80")) == (
        "text: character 3 is U+DC80, half of a surrogate pair, which is not valid text\n"
        "  remove it, or decode the text again from its bytes"
    )


@pytest.mark.parametrize(
    "config", [WordTokenizerConfig(), CharacterTokenizerConfig(), SubwordTokenizerConfig()]
)
@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_tokenizer_training_without_text(config, texts):
    assert message(lambda: config.train(texts)) == (
        "text: no text to train a tokenizer on, or only empty lines\n"
        "  give a text that is not empty"
    )


def test_vocab_size_too_small():
    texts = ["abcdefghijklmnopqrstuvwxyz"]
    assert message(lambda: SubwordTokenizerConfig(vocab_size=270).train(texts), ConfigError) == (
        "tokenizer.vocab_size: 270 is too small: 4 special tokens, 256 bytes and 27 characters "
        "need 287\n"
        "  raise vocab_size to 287 or more, lower character_coverage, or use `type: character`"
    )


RESTORE_HINT = "restore the file from a copy, or train again"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 10**5, "not JSON"),
        (b"[]", "contains no list of tokens"),
        (b"{}", "contains no list of tokens"),
        (b'{"tokens": ["a", 5]}', "contains no list of tokens"),
        (b'{"tokens": ["a", "b", "a"]}', "contains a token twice"),
    ],
)
def test_corrupt_vocabulary_file(content, problem, in_empty_folder):
    path = in_empty_folder / write("vocabulary.json", content)
    assert message(lambda: WordTokenizerConfig().load(path.parent), CorruptRunError) == (
        f"{path}: {problem}\n  {RESTORE_HINT}"
    )


def test_corrupt_subword_model(in_empty_folder):
    path = in_empty_folder / write("subwords.model", b"no model")
    assert message(lambda: SubwordTokenizerConfig().load(path.parent), CorruptRunError) == (
        f"{path}: not a subword model trained by heedful\n  {RESTORE_HINT}"
    )


@pytest.mark.parametrize(
    ("config", "name"),
    [(WordTokenizerConfig(), "vocabulary.json"), (SubwordTokenizerConfig(), "subwords.model")],
)
def test_missing_or_oversized_tokenizer_file(config, name, in_empty_folder, monkeypatch):
    path = in_empty_folder / name
    assert message(lambda: config.load(path.parent), CorruptRunError) == (
        f"{path}: cannot be read (No such file or directory)\n  {RESTORE_HINT}"
    )
    write(name, b"x" * 1001)
    monkeypatch.setattr(vocabulary, "MAX_BYTES", 1000)
    assert message(lambda: config.load(path.parent), CorruptRunError) == (
        f"{path}: 1001 bytes, more than the maximum of 1000\n  {RESTORE_HINT}"
    )
