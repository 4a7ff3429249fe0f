"""The JSDoc types of the modules of plotting/page agree, as tsc checks them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONS = (
    "--noEmit --checkJs --strict false --target es2022 --module es2022 --moduleResolution bundler"
)


@pytest.mark.extras
def test_modules_of_pages_pass_the_type_checker():
    """`npm install --no-save typescript` in the root, or a tsc on PATH, provides it."""
    search = f"{ROOT / 'node_modules/.bin'}:{os.environ['PATH']}"
    compiler = shutil.which("tsc", path=search) or pytest.skip("npm's typescript is not installed")
    modules = [*(ROOT / "src/heedful/plotting/page").glob("*.js")]
    command = [compiler, *OPTIONS.split(), "--lib", "es2023,dom,dom.iterable"]
    result = subprocess.run([*command, *modules], capture_output=True, text=True, check=False)
    assert result.stdout + result.stderr == ""
