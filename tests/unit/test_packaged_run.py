"""The translator that comes with heedful."""

import os

import pytest

import heedful
from heedful.experiment.compression import compress_run
from heedful.runs import Run
from heedful.storage.manifest import PACKAGED_RUN, SAMPLES
from tests.commands import heedful as call

pytestmark = pytest.mark.wide

TEXT, TRANSLATION = "Puella rosam portat.", "The girl carries the rose."


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_packaged_run_is_small_complete_and_not_written_to():
    files = [path for path in PACKAGED_RUN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert set(Run.open("demo").verify()["files"]) == {
        path.relative_to(PACKAGED_RUN).as_posix()
        for path in files
        if path.name not in ("manifest.json", SAMPLES)
    }


def test_packaged_run_translates_from_python():
    assert heedful.load("demo", device="cpu").translate(TEXT).text == TRANSLATION


def test_packaged_run_is_as_good_as_the_page_says():
    few = {"data.test.num_examples": 200}
    (score,) = heedful.evaluate("demo", device="cpu", metrics=["exact-match"], settings=few)
    assert score.value > 95


@pytest.mark.parametrize("command", [["translate", "demo", "in.txt"], ["show", "demo", TEXT]])
def test_commands_know_the_packaged_run(tmp_path, capsys, monkeypatch, command):
    (tmp_path / "in.txt").write_text(f"{TEXT}\n")
    ended = call(capsys, monkeypatch, *command)
    assert ended.code == 0, ended.err
    assert "rose" in ended.out


def test_folder_of_that_name_comes_first(tmp_path):
    compress_run("demo", tmp_path / "demo", "fp16")
    assert Run.open("demo").folder == Run("demo").folder
    assert Run.open(tmp_path / "demo").folder == tmp_path / "demo"
    assert not os.path.samefile("demo", PACKAGED_RUN)
