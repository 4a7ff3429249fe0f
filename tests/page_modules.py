"""JavaScript modules of pages in Node.js: what a module of a test computes with them."""

import json
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from heedful.plotting.html import bundle_modules, read_asset

NEEDS_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="no node on PATH")


def run_module(source, data=None):
    """Return what a module gives to `answer(value)`; `data` is what `input` is."""
    header = 'const input = JSON.parse(require("node:fs").readFileSync(0, "utf8"));\n'
    header += "const answer = (value) => console.log(JSON.stringify(value));\n"
    script = bundle_modules(
        "test.js", read=lambda name: source if name == "test.js" else read_asset(name)
    )
    done = subprocess.run(
        ["node", "-e", header + script],
        input=json.dumps(data),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def open_browser():
    """Start Chromium."""
    command = shutil.which("chromium") or pytest.skip("no chromium on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=command, args=["--no-sandbox"])
        yield started
        started.close()
