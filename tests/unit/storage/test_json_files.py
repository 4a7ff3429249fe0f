"""JSON is read within limits: what is larger or nested deeper is never in memory as a whole."""

import gzip
import json
import tracemalloc

import pytest

from heedful.config import read_settings
from heedful.data.text.pair_files import JSONLConfig
from heedful.data.text_files import read_lines
from heedful.errors import ConfigError, CorruptRunError, DataError
from heedful.runs import Run
from heedful.storage import json_files
from heedful.storage.json_files import parse_json, read_json, read_json_lines
from heedful.storage.manifest import read_manifest_unverified
from heedful.tasks.translation.files import RequestFiles, read_requests
from heedful.training.trackers import get_tracker_run_id

DEPTH, LIMIT = 100_000, 1000


@pytest.mark.parametrize("text", ["[" * DEPTH, "[" * 52 + "]" * 52, '{"a":' * 51 + "1" + "}" * 51])
def test_deeply_nested_json_is_a_value_error(text):
    with pytest.raises(ValueError, match="more than 50 levels"):
        parse_json(text)
    assert parse_json('{"a": [1, [2.5]], "b": "c"}') == {"a": [1, [2.5]], "b": "c"}


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(json_files, "MAX_BYTES", LIMIT)


def test_json_over_the_limit_is_a_value_error(small_limit, tmp_path):
    text = json.dumps("a" * LIMIT)
    (tmp_path / "file.json").write_text(text)
    for parse in (lambda: parse_json(text), lambda: read_json(tmp_path / "file.json")):
        with pytest.raises(ValueError, match=f"more than {LIMIT} bytes"):
            parse()


def test_log_line_over_the_limit_counts_as_damaged(small_limit, tmp_path):
    run, messages = Run(tmp_path), []
    good = json.dumps({"step": 1}) + "\n"
    (tmp_path / "metrics.jsonl").write_text(good + "x" * 5 * LIMIT + "\n" + good)
    assert read_json_lines(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 1}]
    run.truncate_logs_after(1, messages.append)
    assert (tmp_path / "metrics.jsonl").read_text() == 2 * good
    assert messages == [f"{tmp_path / 'metrics.jsonl'}: damaged lines removed: 1"]


def read_constraints(path):
    text = path.with_name("text")
    text.write_text("a\n")
    list(read_requests(RequestFiles(str(text), constraints=str(path))))


READERS = {
    "recipe": (read_settings, ConfigError, "more than 1000000 characters"),
    "manifest.json": (
        lambda path: read_manifest_unverified(path.parent),
        CorruptRunError,
        "not a manifest",
    ),
    "constraints": (read_constraints, DataError, ":1: the line has more than 67,108,864 bytes"),
    "pairs": (
        lambda path: list(JSONLConfig(path=str(path)).stream()),
        DataError,
        ":1: the line has more than 67,108,864 bytes",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_gigabyte_raises_before_it_is_read(name, tmp_path):
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**30)  # zero bytes, which take no space on the disk
    read, error, message = READERS[name]
    tracemalloc.start()
    try:
        with pytest.raises(error, match=message):
            read(tmp_path / name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**28


def test_ids_of_trackers_over_the_limit_are_none(small_limit, tmp_path):
    (tmp_path / "trackers.json").write_text(json.dumps({"wandb": "a", "other": "b" * LIMIT}))
    assert get_tracker_run_id(tmp_path, "wandb") is None


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_line_of_text_may_have_the_limit_and_no_more(suffix, tmp_path):
    path = str(tmp_path / f"text{suffix}")
    with (gzip.open if suffix else open)(path, "wb") as file:
        file.write(b"1234\n12345\n123456\n")
    assert list(read_lines(path, 6)) == ["1234", "12345", "123456"]
    lines = read_lines(path, 5)
    assert [next(lines), next(lines)] == ["1234", "12345"]
    with pytest.raises(DataError, match=":3: the line has more than 5 bytes"):
        next(lines)
