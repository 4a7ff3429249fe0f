"""Imports: they point down, and the first one is quick."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.source import ROOT


def test_imports_point_down():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_importing_heedful_imports_no_torch():
    code = "import sys, heedful; print(*sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    assert outcome.stdout.split() == []
