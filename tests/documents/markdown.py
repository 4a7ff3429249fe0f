"""Markdown as the document tests read it: its code blocks, its links, its headings."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*).*?\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=\"([^\"]+)\"")


class Block(NamedTuple):
    """A fenced piece of code, and the line of the document it begins on."""

    language: str
    text: str
    line: int


def name_of(document: Path) -> str:
    """A document as a reader of the repository would write it."""
    return document.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """Every fenced block of a document."""
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in _FENCE.finditer(text)
    ]


def python_of(text: str) -> str:
    """All Python of a document as one program, each line at the number it has there."""
    lines = [""] * (text.count("\n") + 1)
    for block in blocks(text):
        if block.language == "python":
            code = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(code)] = code
    return "\n".join(lines).rstrip() + "\n"


def links(text: str) -> list[str]:
    """What the links and pictures of a document point to, its code left out."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [match[1] or match[2] for match in _LINK.finditer(prose)]


def anchors(text: str) -> set[str]:
    """The names by which the headings of a document can be linked to."""
    headings = re.findall(r"^#+ +(.*?) *$", _FENCE.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}
