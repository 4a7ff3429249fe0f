import gzip
import json

import pytest

from heedful.errors import DataError
from heedful.results.config import ResultConfig
from heedful.results.preparation import check_data, find_data, prepare


def result_with(*steps, files=None):
    data = {"folder": "words", "files": files or {}, "get": "somewhere", "license": "none"}
    return ResultConfig.model_validate({"title": "t", "data": data, "prepare": steps})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "words").mkdir()
    rows = [f"w{index // 2}\tp{index}\tA;B" for index in range(400)]
    (tmp_path / "words/train.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return tmp_path / "words"


def test_split_off_keeps_keys_together_and_loses_no_line(folder, tmp_path):
    step = {"do": "split-off", "files": ["train.tsv.gz"], "train": ["train"], "dev": ["dev"]}
    prepare(result_with({**step, "share": 0.2, "key_column": 1}), folder, tmp_path / "out", None)
    parts = [(tmp_path / "out" / name).read_text().splitlines() for name in ("train", "dev")]
    keys = [{line.split("\t")[0] for line in part} for part in parts]
    assert sum(map(len, parts)) == 400
    assert not keys[0] & keys[1]
    assert 0.1 < len(keys[1]) / 200 < 0.3
    first = parts[1]
    prepare(result_with({**step, "share": 0.2, "key_column": 1}), folder, tmp_path / "out", None)
    assert (tmp_path / "out/dev").read_text().splitlines() == first


def test_blocks_are_split_whole(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words/a").write_text("".join(f"a{i}\nb{i}\n\n" for i in range(50)))
    step = {"do": "split-off", "files": ["a"], "train": ["t"], "dev": ["d"], "share": 0.3}
    prepare(result_with({**step, "blocks": True}), tmp_path / "words", tmp_path / "out", None)
    blocks = [(tmp_path / "out" / name).read_text().strip().split("\n\n") for name in "td"]
    assert sum(map(len, blocks)) == 50
    assert all(block.count("\n") == 1 for part in blocks for block in part)


def test_columns_are_rewritten(folder, tmp_path):
    columns = ["{3:features} {1:letters}", "{2}"]
    step = {"do": "rewrite", "file": "train.tsv.gz", "to": "out.tsv", "columns": columns}
    prepare(result_with(step, files={"train.tsv.gz": ""}), folder, tmp_path / "out", 1)
    assert (tmp_path / "out/out.tsv").read_text() == "A B w 0\tp0\n"


def test_series_become_rows_without_their_end(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words/s.csv").write_text("H1,5,6,7\nH2,1,2,3\n")
    step = {"do": "long-series", "file": "s.csv", "to": "long.csv", "without_last": 2}
    prepare(result_with(step), tmp_path / "words", tmp_path / "out", None)
    assert (tmp_path / "out/long.csv").read_text() == "id,time,value\nH1,0,5\nH2,0,1\n"


def test_each_reference_becomes_a_pair(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words/s.jsonl").write_text(json.dumps({"s": ["a.", "b."], "t": ["x", "y"]}))
    step = {"do": "references", "file": "s.jsonl", "to": "p", "source": "s", "targets": "t"}
    prepare(result_with(step), tmp_path / "words", tmp_path / "out", None)
    pairs = list(map(json.loads, (tmp_path / "out/p").read_text().splitlines()))
    assert pairs == [{"source": "a. b.", "target": "x"}, {"source": "a. b.", "target": "y"}]


def test_missing_and_changed_files_are_named_with_their_origin(folder, tmp_path):
    result = result_with(files={"train.tsv.gz": "0" * 64, "test.tsv": "1" * 64})
    state = find_data(result, tmp_path)
    assert (state.missing, state.changed) == (["test.tsv"], ["train.tsv.gz"])
    with pytest.raises(DataError) as caught:
        check_data(result, state, tmp_path)
    assert str(caught.value) == (
        "data/words: 2 files missing: test.tsv, train.tsv.gz\n"
        f"  put them into {tmp_path}/words, and give --data {tmp_path} (or HEEDFUL_DATA); "
        "they come from somewhere"
    )
