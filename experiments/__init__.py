"""Experiments: what is said of attention in lectures, measured with heedful's own parts.

Each is a module that runs by itself, prints a table in Markdown as it goes, and draws a chart. What
came out, and what to make of it, is told in docs/lab/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from heedful.storage import write_text

LAB = Path("docs/lab")


def heading(names: Sequence[str]) -> str:
    """Begin a table: what each column holds; all but the first are numbers."""
    return row(names) + "\n" + row(["---", *["--:"] * (len(names) - 1)])


def row(cells: Iterable[str]) -> str:
    """Write one row of a table."""
    return "| " + " | ".join(cells) + " |"


def save(picture: str, folder: Path, name: str) -> Path:
    """Write a picture among those of the lab; say where."""
    path = folder / "images" / f"{name}.svg"
    write_text(path, picture)
    return path
