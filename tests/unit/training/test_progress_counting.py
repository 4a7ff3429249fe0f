import io

import pytest
from rich.console import Console

from heedful.training import progress
from heedful.training.progress import ProgressReporter


@pytest.mark.parametrize("is_terminal", [True, False])
def test_data_progress_shows_task_and_count(is_terminal, monkeypatch):
    monkeypatch.setattr(progress, "_PLAIN_EVERY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")  # a dumb one is shown plain lines
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=80)
    with ProgressReporter(console) as watch:
        watch("reading", 1000, None)
        watch("cutting", 500, 2000)
    said = console.file.getvalue()
    if is_terminal:
        assert "cutting" in said
        assert "500/2000" in said
    else:
        assert said == "reading: 1,000\ncutting: 500 of 2,000\n"


def test_data_progress_lines_are_rate_limited():
    console = Console(file=io.StringIO(), width=80)
    with ProgressReporter(console) as watch:
        for done in range(1000):
            watch("cutting", done, 1000)
    assert console.file.getvalue() == ""
