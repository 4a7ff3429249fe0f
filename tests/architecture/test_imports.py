"""Imports follow the layers, and `import heedful` imports no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT


@pytest.mark.wide  # `make check` checks this, too
def test_imports_follow_the_layers():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_importing_heedful_imports_no_torch():
    code = "import sys, heedful; print(*sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert completed.stdout.split() == []
