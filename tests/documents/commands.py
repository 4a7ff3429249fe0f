"""Checks that the commands and options of shell lines in documents exist."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from tests.documents.markdown import ROOT, blocks, without_blocks

SHELLS = {"bash", "console", "sh", "shell"}
PROGRAMS = ("heedful", "make", "python")
OWN_FOLDERS = ("benchmarks", "experiments", "tests", "tools")


def shell_lines(text: str) -> Iterator[str]:
    """Yield the command lines of shell blocks, without prompts and output."""
    for block in blocks(text):
        if block.language in SHELLS:
            lines = block.text.replace("\\\n", " ").splitlines()
            prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            yield from prompted if block.language == "console" else lines


def inline_commands(text: str) -> Iterator[str]:
    """Yield the commands that a text names between backticks: of heedful, make and Python.

    A word before a target of make is a command, too, whatever the word.
    """
    for code in re.findall(r"`([^`]+)`", without_blocks(text)):
        words = code.split()
        is_program = words[0] in PROGRAMS if words else False
        is_target = len(words) == 2 and words[0].isalpha() and words[1] in _make_targets()
        if len(words) > 1 and (is_program or is_target):
            yield " ".join(words)


def inline_mistakes(command: str) -> list[str]:
    """Return the unknown commands, modules and files of an inline command."""
    words = command.split()
    if words[0] not in PROGRAMS:
        return [command]
    if words[0] == "python" and not command.rsplit(".", maxsplit=1)[-1].isupper():
        is_module, name = words[1] == "-m", words[-1] if len(words) == 2 else words[2]
        path = ROOT / (name.replace(".", "/") if is_module else words[1])
        names = [path, path.with_suffix(".py"), path / "__main__.py"]
        is_own = (words[2] if is_module else words[1]).split(".")[0].split("/")[0] in OWN_FOLDERS
        return [] if not is_own or any(map(Path.is_file, names)) else [command]
    if re.search(r"[A-Z|$<>{}\[\]]|\.\.\.", command):  # placeholders
        command = " ".join(words[:2])
    return mistakes(command)


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


@cache
def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
