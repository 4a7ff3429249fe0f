"""Code blocks, links and headings of Markdown documents."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*).*?\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=\"([^\"]+)\"")


class Block(NamedTuple):
    """A fenced code block and the line on which it begins."""

    language: str
    text: str
    line: int


def name_of(document: Path) -> str:
    """Return the path of a document relative to the repository."""
    return document.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a document."""
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in _FENCE.finditer(text)
    ]


def without_blocks(text: str) -> str:
    """Return a document without its fenced blocks."""
    return _FENCE.sub("", text)


def python_of(text: str) -> str:
    """Return all Python of a document as one program that keeps its line numbers."""
    lines = [""] * (text.count("\n") + 1)
    for block in blocks(text):
        if block.language == "python":
            code = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(code)] = code
    return "\n".join(lines).rstrip() + "\n"


def links(text: str) -> list[str]:
    """Return the targets of links and images outside of code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [match[1] or match[2] for match in _LINK.finditer(prose)]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a document."""
    headings = re.findall(r"^#+ +(.*?) *$", _FENCE.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}
