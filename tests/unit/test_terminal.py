import os
import pty
import sys
from select import select

import pytest

from heedful.errors import ConfigError
from heedful.terminal import parse_bytes, with_progress


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512", 512),
        ("2k", 2048),
        ("1.5 KiB", 1536),
        ("512MiB", 2**29),
        ("4GiB", 2**32),
        ("4gb", 2**32),
        ("1T", 2**40),
    ],
)
def test_amounts_of_memory_parsed(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "4 XB", "-1g"])
def test_invalid_amount_of_memory_raises(text):
    with pytest.raises(ConfigError) as caught:
        parse_bytes(text)
    assert str(caught.value) == (f"{text}: not an amount of memory\n  write it as 512MiB or 4GiB")


def test_progress_is_shown_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal, end = pty.openpty()
    with open(end, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        words = list(with_progress(["one", "three", "four"], total=12, count_of=len))
        stderr.flush()
        shown = ""
        while select([terminal], [], [], 1)[0]:  # it comes in pieces
            shown += os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert words == ["one", "three", "four"]
    assert "decoding" in shown
    assert "12/12" in shown


def test_no_progress_without_a_terminal(capsys):
    assert list(with_progress(iter("abc"))) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
