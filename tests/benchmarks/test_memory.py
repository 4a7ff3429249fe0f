"""The benchmark of memory runs, on a corpus of a few hundred pairs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.wide
@pytest.mark.slow
def test_building_and_reading_measured():
    command = [sys.executable, "-m", "benchmarks.memory", "--pairs", "300"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    header, _, row = result.stdout.splitlines()[2:]
    columns = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert columns["| pairs"] == "| 300"
    assert float(columns["reading, MB"]) > 0
    assert float(columns["tokens, MB"]) >= 0
