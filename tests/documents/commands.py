"""Checks that the commands and options of shell lines in documents exist."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from tests.documents.markdown import ROOT, blocks

SHELLS = {"bash", "console", "sh", "shell"}


def shell_lines(text: str) -> Iterator[str]:
    """Yield the command lines of shell blocks, without prompts and output."""
    for block in blocks(text):
        if block.language in SHELLS:
            lines = block.text.replace("\\\n", " ").splitlines()
            prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            yield from prompted if block.language == "console" else lines


@cache
def commands() -> dict[str, Any]:
    """Return the commands of heedful by name."""
    from heedful.cli.main import app

    return dict(typer.main.get_command(app).commands)


def mistakes(line: str) -> list[str]:
    """Return unknown commands and options of the `heedful` and `make` calls in a line."""
    words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    unknown = []
    while words:
        end = next((i for i, word in enumerate(words) if re.fullmatch(r"[|&;]+", word)), len(words))
        unknown += _unknown_in_call(words[:end])
        words = words[end + 1 :]
    return unknown


def _unknown_in_call(words: list[str]) -> list[str]:
    if words[:1] == ["make"]:
        targets = [word for word in words[1:] if "=" not in word]
        return [f"make {target}" for target in targets if target not in _make_targets()]
    if len(words) < 2 or words[0].split("/")[-1] != "heedful":
        return []
    names = commands()
    if words[1].startswith("-"):
        return [] if words[1] in {"--help", "--version"} else [f"heedful {words[1]}"]
    if words[1] not in names:
        return [f"heedful {words[1]}"]
    options = {"--help", *(name for option in names[words[1]].params for name in option.opts)}
    used = [word.split("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)]
    return [f"heedful {words[1]} {option}" for option in used if option not in options]


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
