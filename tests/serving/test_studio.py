"""`make studio` opens the inspector in a browser."""

import os
import signal
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.serving.servers import START_SECONDS, wait_for

pytestmark = pytest.mark.faults  # it leaves processes if it fails
ROOT = Path(__file__).parents[2]


def test_studio_opens_the_inspector_of_the_packaged_run(tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    process = subprocess.Popen(
        ["make", "-o", "setup", "studio", "PORT=0", f"BIN={Path(sys.executable).parent}"],
        cwd=ROOT,
        env={**os.environ, "BROWSER": str(browser), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        wait_for(lambda: opened.exists() and opened.read_text().strip(), START_SECONDS)
        with urllib.request.urlopen(opened.read_text().strip()) as page:
            assert "inspector-page.js" in page.read().decode()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(START_SECONDS)
