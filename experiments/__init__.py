"""Experiments on claims about attention, measured with heedful.

Each module runs by itself, prints Markdown tables and draws charts. The results are discussed in
docs/lab/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from heedful.storage.atomic import write_text

LAB = Path("docs/lab")


def heading(names: Sequence[str]) -> str:
    """Return the header of a Markdown table; all columns but the first are numbers."""
    return row(names) + "\n" + row(["---", *["--:"] * (len(names) - 1)])


def row(cells: Iterable[str]) -> str:
    """Return one row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def save(image: str, folder: Path, name: str) -> Path:
    """Write an SVG file and return its path."""
    path = folder / "images" / f"{name}.svg"
    write_text(path, image)
    return path
