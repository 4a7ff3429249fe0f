import json
import os
import time
from pathlib import Path

import pytest

from heedful.results.config import load_result, result_names
from heedful.results.preparation import find_data
from tests.commands import heedful, start_heedful


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEEDFUL_DATA", raising=False)
    return lambda *words: heedful(capsys, monkeypatch, "reproduce", *words)


def test_list_has_every_result_and_its_data(call):
    ended = call()
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == result_names()
    assert "cmudict_g2p (missing)" in ended.out


def test_missing_data_are_named_without_traceback(call):
    ended = call("trec")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("heedful: data/trec: 2 files missing: train.tsv.gz, test.tsv.gz\n")
    assert "github.com/FreedomIntelligence/qnn" in ended.err


def test_unknown_result_and_system_raise(call):
    assert "did you mean 'trec'" in call("trek").err
    assert "no system 'x'" in call("latin-attention", "--systems", "x").err


def test_arithmetic_result_needs_no_training(call, tmp_path):
    ended = call("deck-flops", "--json")
    cells = json.loads(ended.out)["cells"]
    assert sum(cell["agrees"] for cell in cells) == 13
    ended = call("--collect", ".")
    assert [Path(line).name for line in ended.out.split()] == ["results.md", "results.html"]
    assert "| Transformer base | 3.28e+18 | 3.3e+18 | agrees |" in Path("results.md").read_text()
    assert "http://" not in Path("results.html").read_text()


@pytest.mark.wide
def test_miniature_of_built_in_data_trains_scores_and_resumes(call, tmp_path):
    words = "latin-attention", "--miniature", "--device", "cpu", "--jobs", "2"
    first = call(*words)
    assert first.code == 0, first.err
    record = tmp_path / "reproductions/records/latin-attention-miniature/luong-1.json"
    values = json.loads(record.read_text())
    assert len(values["lines"]["texts"]) == 20
    assert values["flops"] > 0
    written = record.stat().st_mtime_ns
    again = call(*words)
    assert again.out == first.out
    assert record.stat().st_mtime_ns == written
    assert "other --out" in call(*words, "--budget", "1").err


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in result_names() if load_result(name).data])
def test_miniature_of_real_data_runs(call, name, request):
    folder = os.environ.get("HEEDFUL_DATA") or request.getfixturevalue("heedful_data")
    if not find_data(load_result(name), Path(folder), with_hashes=False).is_complete:
        pytest.skip(f"{name}: its data are not in {folder}")
    ended = call(name, "--miniature", "--data", str(folder), "--device", "cpu")
    assert ended.code == 0, ended.err
    assert "miniature: no verdict" in ended.out or not load_result(name).published


@pytest.mark.faults
@pytest.mark.slow
def test_killed_result_resumes(tmp_path):
    words = "latin-attention", "--miniature", "--systems", "luong", "--budget", "400steps"
    options = "--device", "cpu", "--out", tmp_path
    run = tmp_path / "latin-attention-miniature/runs/luong-1"
    with start_heedful("reproduce", *words, *options) as process:
        deadline = time.monotonic() + 300
        while not list(run.glob("checkpoints/step-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.kill()
    records = tmp_path / "records/latin-attention-miniature"
    assert not list(records.glob("*"))
    with start_heedful("reproduce", *words, *options) as process:
        assert process.wait(600) == 0
    record = json.loads((records / "luong-1.json").read_text())
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert record["steps"] == max(steps) == 400
    assert "resum" in (run.parent.parent / "logs/luong-1.txt").read_text()
