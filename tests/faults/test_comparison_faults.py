"""An interrupted or damaged comparison is resumed by the same command."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from heedful.storage.json_files import read_json_lines
from tests.commands import write_recipe
from tests.forking import ForkedCommand

pytestmark = pytest.mark.faults

MAX_WAIT_SECONDS = 240


@pytest.fixture
def start(tmp_path):
    """Start a comparison of two recipes that are trained for so many steps."""
    text = write_recipe(tmp_path / "data").read_text()
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "two.yaml").write_text(text.replace("bilinear", "additive"))
    lines = (tmp_path / "data" / "source.txt").read_text().splitlines()[:20]
    (tmp_path / "src").write_text("\n".join(lines) + "\n")

    def start_comparison(budget):
        return ForkedCommand(
            *("compare", "--data", "one.yaml", "--recipes", "one.yaml,two.yaml"),
            *("--budget", budget, "--source", "src", "--target", "src", "--device", "cpu"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    return start_comparison


def wait_for_steps(run, min_step):
    ends = time.monotonic() + MAX_WAIT_SECONDS
    while time.monotonic() < ends:
        steps = [entry["step"] for entry in read_json_lines(run / "metrics.jsonl")]
        if max(steps, default=0) >= min_step:
            return
        time.sleep(0.05)
    pytest.fail(f"{run} did not reach step {min_step}")


def child_of(process):
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(path.read_text().split()[0])


def test_interrupted_comparison_is_resumed(start, tmp_path):
    process = start("60steps")
    second = tmp_path / "comparison" / "runs" / "two-0"
    wait_for_steps(second, 20)
    first = (tmp_path / "comparison" / "runs" / "one-0" / "metrics.jsonl").read_bytes()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert (process.returncode, output) == (
        0,
        "comparison: saved; the same command resumes\n",
    )
    stopped = read_json_lines(second / "metrics.jsonl")
    assert not (tmp_path / "comparison" / "report.html").exists()

    process = start("60steps")
    output, _ = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 0, output
    assert (tmp_path / "comparison" / "runs" / "one-0" / "metrics.jsonl").read_bytes() == first
    entries = read_json_lines(second / "metrics.jsonl")
    assert entries[: len(stopped)] == stopped, "an interrupted run is resumed, not restarted"
    saved = json.loads((tmp_path / "comparison" / "comparison.json").read_text())
    assert [system["cost"]["steps"]["mean"] for system in saved["systems"]] == [60, 60]


@pytest.mark.slow
def test_killed_training_raises(start, tmp_path):
    process = start("30steps")
    wait_for_steps(tmp_path / "comparison" / "runs" / "one-0", 10)
    os.kill(child_of(process), signal.SIGKILL)
    output, _ = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 1
    assert (
        "failed: one (comparison/runs/one-0): the process died (killed by SIGKILL)"
        in output.splitlines()
    )
    process = start("30steps")
    process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 0, "the same command trains it again"
