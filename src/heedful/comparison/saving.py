"""Saving: a comparison as files, each whole in itself.

report.html      the page, with plots and examples
table.md, table.tex, table.csv
comparison.json  every number
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.comparison.results import Comparison
from heedful.comparison.tables import as_csv, as_latex, as_markdown
from heedful.storage import explaining_failures, write_text


def save(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every file; give their paths."""
    from heedful.comparison.page import draw_comparison

    with explaining_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # The numbers first: they may have taken hours.
    forms: Mapping[str, Callable[[Comparison], str]] = {
        "comparison.json": as_json,
        "table.csv": as_csv,
        "table.md": as_markdown,
        "table.tex": as_latex,
        "report.html": draw_comparison,
    }
    for name, write in forms.items():
        write_text(folder / name, write(comparison))
    return [folder / name for name in forms]


def as_json(comparison: Comparison) -> str:
    """Everything that is known, by the names of `results`; what is no finite number is null."""
    return json.dumps(_plain(comparison), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
