"""JavaScript modules of pages in Node.js: what a module of a test computes with them."""

import json
import re
import shutil
import subprocess
from base64 import b64decode
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


def part_of(page, name):
    """Return the match of a part of a page; its group 1 is JSON."""
    return re.search(f'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)


def check_page_size(path):
    """Assert that a page has at most 1.4 times its compressed weights and 150 kB."""
    compressed = b64decode(json.loads(part_of(path.read_text(), "weights")[1]))
    assert path.stat().st_size <= 1.4 * len(compressed) + 150_000


@contextmanager
def open_browser():
    """Start Chromium."""
    command = shutil.which("chromium") or pytest.skip("no chromium on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=command, args=["--no-sandbox"])
        yield started
        started.close()
