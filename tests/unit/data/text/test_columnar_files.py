"""Parquet, Arrow and folders of `datasets` hold the same examples as other files."""

import json

import pytest

from heedful.data.sources import TextColumnConfig
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import ArrowConfig, DatasetFolderConfig, ParquetConfig
from heedful.errors import DataError
from heedful.tasks.command_line import PARALLEL_FILES, TEXT_FILES
from heedful.tasks.tagging.command import FILE_OPTIONS as TAGGED_FILES

pytestmark = pytest.mark.extras
pa = pytest.importorskip("pyarrow", reason="needs heedful[parquet]")

PAIRS = [Pair(f"source {row}", f"target {row}\nline 2") for row in range(25)]
COLUMNS = {
    "id": list(range(25)),
    "translation": [{"de": pair.source, "en": pair.target} for pair in PAIRS],
    "text": [pair.source for pair in PAIRS],
}
NESTED = {"source_column": "translation.de", "target_column": "translation.en"}


def table(columns=COLUMNS, features=None):
    built = pa.table(columns)
    if features is None:
        return built
    described = json.dumps({"info": {"features": features}})
    return built.replace_schema_metadata({"huggingface": described})


def write_arrow(path, built, *, is_stream, batch_size=4):
    new = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, built.schema) as writer:
        writer.write_table(built, max_chunksize=batch_size)


def write_dataset(folder, built, num_files=3):
    """Write what `save_to_disk` of datasets 5.2.0 writes."""
    folder.mkdir(parents=True)
    size, names = -(-len(built) // num_files), []
    for index in range(num_files):
        names.append(f"data-{index:05d}-of-{num_files:05d}.arrow")
        write_arrow(folder / names[-1], built.slice(index * size, size), is_stream=True)
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "f",
        "_split": "train",
    }
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def write_all(folder, built):
    """Write a table in each format; return the settings of each."""
    import pyarrow.parquet as pq

    pq.write_table(built, folder / "pairs.parquet", row_group_size=7)
    write_arrow(folder / "file.arrow", built, is_stream=False)
    write_arrow(folder / "stream.arrow", built, is_stream=True)
    write_dataset(folder / "saved", built)
    return [
        ParquetConfig(path=str(folder / "pairs.parquet"), **NESTED),
        ArrowConfig(path=str(folder / "file.arrow"), **NESTED),
        ArrowConfig(path=str(folder / "stream.arrow"), **NESTED),
        DatasetFolderConfig(path=str(folder / "saved"), **NESTED),
    ]


def test_each_format_holds_the_same_pairs(tmp_path):
    for config in write_all(tmp_path, table()):
        assert config.read() == PAIRS
        by_number = config.model_copy(update={"source_column": 3, "target_column": "text"})
        assert by_number.read() == [Pair(pair.source, pair.source) for pair in PAIRS]


def test_each_format_holds_the_same_lines(tmp_path):
    configs = write_all(tmp_path, table())
    lines = [line for pair in PAIRS for line in pair.target.split("\n")]
    for config in configs:
        text = TextColumnConfig(path=config.path, text_column="translation.en")
        assert text.read() == lines
        assert TextColumnConfig(path=config.path).read() == [pair.source for pair in PAIRS]


def test_rows_streamed_in_batches(tmp_path):
    """A file that is damaged in its second half gives the rows of its first half."""
    for config in write_all(tmp_path, table()):
        rows = config.stream()
        assert next(rows) == PAIRS[0]
        rows.close()
    path = tmp_path / "stream.arrow"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    read = []
    with pytest.raises(DataError, match=r"stream\.arrow: cannot be read as Arrow \("):
        read.extend(ArrowConfig(path=str(path), **NESTED).stream())
    assert 0 < len(read) < len(PAIRS)
    assert read == PAIRS[: len(read)]


def test_class_labels_become_names(tmp_path):
    labels = {"names": ["negative", "positive"], "_type": "ClassLabel"}
    tags = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
    columns = {
        "text": ["good", "bad"],
        "label": [1, 0],
        "words": [["a", "b"], ["c"]],
        "tags": [[1, 0], [0]],
    }
    features = {
        "label": labels,
        "tags": {"feature": tags, "_type": "List"},
        "text": {"_type": "Value"},
    }
    for config in write_all(tmp_path, table(columns, features)):
        chosen = config.model_copy(update={"source_column": "text", "target_column": "label"})
        assert chosen.read() == [Pair("good", "positive"), Pair("bad", "negative")]
        chosen = config.model_copy(update={"source_column": "words", "target_column": "tags"})
        assert chosen.read() == [Pair("a b", "B-PER O"), Pair("c", "O")]


def test_missing_label_raises(tmp_path):
    features = {"label": {"names": ["negative", "positive"], "_type": "ClassLabel"}}
    write_arrow(
        tmp_path / "a.arrow", table({"text": ["good"], "label": [-1]}, features), is_stream=True
    )
    config = ArrowConfig(
        path=str(tmp_path / "a.arrow"), source_column="text", target_column="label"
    )
    assert message(config.read) == (
        f"{tmp_path}/a.arrow, label: the label -1 has no name: there are 2\n"
        "  leave out rows without a label; test sets on the hub often have none"
    )


def message(function):
    with pytest.raises(DataError) as caught:
        function()
    return str(caught.value)


def test_missing_columns_name_those_there_are(tmp_path):
    found = "columns found: 'id', 'translation.de', 'translation.en', 'text'"
    for config in write_all(tmp_path, table()):
        first = config.columnar_source.data_files()[0]
        wrong = config.model_copy(update={"target_column": "txt"})
        assert message(wrong.read) == (
            f"{first}: no column is called 'txt'; did you mean 'text'?\n"
            f"  give --source-column and --target-column; {found}"
        )
        wrong = TextColumnConfig(path=config.path, text_column=9)
        assert (
            message(wrong.read) == f"{first}: there is no column 9\n  give --text-column; {found}"
        )
        wrong = TextColumnConfig(path=config.path, text_column="id")
        assert message(wrong.read) == (
            f"{config.path}, column id, row 1: the value of 'id' is not a text\n"
            "  every value must be a text; convert or remove the others"
        )


def test_folders_of_splits(tmp_path):
    for split in ("train", "test"):
        write_dataset(tmp_path / "all" / split, table(), num_files=1)
    (tmp_path / "all" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    config = DatasetFolderConfig(path=str(tmp_path / "all"), **NESTED)
    hint = "name one, as a folder or with `split`: train, test"
    assert message(config.read) == f"{tmp_path}/all: has several splits\n  {hint}"
    wrong = config.model_copy(update={"split": "tran"})
    assert message(wrong.read) == (
        f"{tmp_path}/all: has no split 'tran'; did you mean 'train'?\n  {hint}"
    )
    assert config.model_copy(update={"split": "test"}).read() == PAIRS
    assert DatasetFolderConfig(path=str(tmp_path / "all" / "train"), **NESTED).read() == PAIRS


def test_incomplete_folders_reported(tmp_path):
    folder = tmp_path / "saved"
    config = DatasetFolderConfig(path=str(folder), **NESTED)
    folder.mkdir()
    assert message(config.read) == (
        f"{folder}: not a folder that `save_to_disk` of the package datasets wrote: no state.json\n"
        "  name a folder with state.json and data-*.arrow, or a file"
    )
    folder.rmdir()
    write_dataset(folder, table(), num_files=2)
    (folder / "data-00001-of-00002.arrow").unlink()
    assert message(config.read) == (
        f"{folder}/data-00001-of-00002.arrow: a file that state.json names is missing\n"
        "  copy the whole folder"
    )
    (folder / "state.json").write_text("{")
    assert message(config.read) == (
        f"{folder}/state.json: not JSON\n  copy or download the file again"
    )


def test_options_choose_the_format_by_the_name(tmp_path):
    (tmp_path / "saved").mkdir()
    saved = str(tmp_path / "saved")
    names = {"source_column": "source", "target_column": "target"}
    for path, data_type in (("a.arrow", "arrow"), ("a.parquet", "parquet"), (saved, "datasets")):
        setting = PARALLEL_FILES.data_setting({"pairs": path})
        assert setting == {"type": data_type, "path": path, **names}
        setting = TEXT_FILES.data_setting({"text": path, "text_column": "body"})
        assert setting == {"type": "text-column", "path": path, "text_column": "body"}
        setting = TAGGED_FILES.data_setting({"conll": path, "target_column": "ner_tags"})
        expected = {"source_column": "tokens", "target_column": "ner_tags"}
        assert setting == {"type": data_type, "path": path, **expected}
    assert TEXT_FILES.data_setting({"text": "a.txt"}) == {"type": "text", "path": "a.txt"}


@pytest.mark.parametrize("is_stream", [False, True])
def test_offsets_beyond_a_column_reported(is_stream, tmp_path):
    path = tmp_path / "pairs.arrow"
    columns = {"source": ["abc", "defg"], "target": ["xyz", "w"]}
    write_arrow(path, table(columns), is_stream=is_stream)
    offsets = [number.to_bytes(4, "little") for number in (0, 3, 7, 900)]
    valid, wrong = b"".join(offsets[:3]), b"".join([*offsets[:2], offsets[3]])
    assert path.read_bytes().count(valid) == 1
    path.write_bytes(path.read_bytes().replace(valid, wrong))
    with pytest.raises(DataError, match=r"cannot be read as Arrow \(.*ffset"):
        ArrowConfig(path=str(path)).read()
