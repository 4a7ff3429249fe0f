import os
import stat
import subprocess
import sys

import pytest

from tests.commands import heedful


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "config.yaml").write_text("info: {summary: letters}\n")
    (folder / "metrics.jsonl").write_text('{"type": "training", "step": 1, "loss": 2.5}\n{"ki')
    return folder


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *words: heedful(capsys, monkeypatch, "report", *words)


def test_report_writes_a_page_and_prints_its_path(call, run):
    ended = call(run)
    assert (ended.code, ended.out, ended.err) == (0, f"{run / 'report.html'}\n", "")
    page = (run / "report.html").read_text()
    assert "<title>letters</title>" in page
    assert '"columns":[[1],[null],[null],[2.5]]' in page
    assert "summary: letters" in page


def test_run_without_metrics_has_a_page(call, run):
    (run / "metrics.jsonl").unlink()
    assert call(run).code == 0
    assert "training has not logged any metrics" in (run / "report.html").read_text()


def test_trained_run_has_curves_and_attention_maps(call, copied):
    assert call(copied).code == 0
    page = (copied / "report.html").read_text()
    assert '"type":"validation"' in page
    assert '"id":"grad_norm"' in page
    assert '"weights":[[' in page
    assert '"weights":null' not in page


def test_report_of_another_folder_raises(call, run):
    ended = call(run.with_name("leters"))
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {run.with_name('leters')}: no such folder; did you mean 'letters'?\n"
        "  name a folder written by `heedful train`\n"
    )
    assert "not a run folder" in call(run.parent).err


def test_open_starts_the_browser(run, tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-m", "heedful", "report", str(run), "--open"]
    subprocess.run(command, env={**os.environ, "BROWSER": str(browser)}, check=True)
    assert opened.read_text().strip() == (run / "report.html").as_uri()


def test_missing_browser_raises(run, tmp_path):
    command = [sys.executable, "-m", "heedful", "report", str(run), "--open"]
    without = {**os.environ, "PATH": str(tmp_path), "BROWSER": ""}
    ended = subprocess.run(command, env=without, capture_output=True, text=True, check=True)
    assert ended.stderr == "no browser found; open the file yourself\n"


def test_report_imports_no_torch(run):
    code = "import sys; sys.argv = ['heedful', 'report', sys.argv[1]]\nfrom heedful.cli.main "
    code += "import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, str(run)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    assert outcome.stdout.splitlines()[-1] == "False"
