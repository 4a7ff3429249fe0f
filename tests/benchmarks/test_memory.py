"""The benchmark of memory runs, on a corpus of a few hundred pairs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_building_and_reading_are_measured():
    command = [sys.executable, "-m", "benchmarks.memory", "--pairs", "300"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert [line.split(":")[0].strip() for line in result.stdout.splitlines() if ":" in line] == [
        "300 pairs",
        "building",
        "reading",
    ]
