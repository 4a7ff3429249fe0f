"""Samples of a training run with their attention maps, as its report shows them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.training_curves import Entry
from heedful.plotting.svg import escape_invisible, escape_line, format_weight

Entries = Sequence[Entry]

MAX_VALIDATIONS = 100
MAX_WEIGHTS = 1_000_000  # about 6 MB of JSON
MAX_TOKENS = 64  # per side; a larger map is unreadable
MAX_CELLS = 1024  # of an image
MAX_TEXT_LENGTH = 2000  # characters


def group_by_step(samples: Entries) -> dict[str, Any]:
    """Group samples by step, in order; of many steps an even selection with first and last."""
    steps: dict[int, list[Entry]] = {}
    for sample in samples:
        if isinstance(step := sample.get("step"), int):
            steps.setdefault(step, []).append(sample)
    kept, count = sorted(steps), _max_steps_shown(list(steps.values()))
    if len(kept) > count:
        kept = [kept[index * (len(kept) - 1) // (count - 1)] for index in range(count)]
    validations = [
        {"step": step, "items": [_sample_to_dict(sample) for sample in steps[step]]}
        for step in kept
    ]
    return {"validations": validations, "total": len(steps)}


def _max_steps_shown(steps: Sequence[Entries]) -> int:
    """Return for how many validations a page has room, by the largest of them."""
    sizes = [_max_num_weights(sample) for samples in steps for sample in samples]
    num_weights = max(map(len, steps), default=1) * max(sizes, default=1)
    return max(2, min(MAX_VALIDATIONS, MAX_WEIGHTS // max(1, num_weights)))


def _max_num_weights(sample: Entry) -> int:
    source, output = (len(_tokens(sample, side)) for side in ("source", "output"))
    if _grid(sample):
        return min(source, MAX_CELLS) * min(output, MAX_TOKENS)
    return (min(source, MAX_TOKENS) + min(output, MAX_TOKENS)) ** 2 // 4


def _sample_to_dict(sample: Entry) -> dict[str, Any]:
    """Return a sample as far as it goes; weights only if they are an attention map."""
    source, output = _tokens(sample, "source"), _tokens(sample, "output")
    weights: list[list[float]] | None = None
    notes: list[str] = []
    grid: tuple[int, int] | None = None
    with suppress(DataError, ValueError, TypeError, OverflowError):
        array = np.array(sample.get("attention"), dtype=np.float64)
        copied = sample.get("copy_probs", sample.get("copy_shares", ()))  # the name until 0.1.0
        copy_probs = [float(prob) for prob in copied]
        grid = _grid(sample)
        attention_map = AttentionMap(
            source, output, array, copy_probs=copy_probs or None, grid=grid
        )
        if not attention_map.is_empty:
            attention_map = attention_map.join_bytes()
            source, output = list(attention_map.source), list(attention_map.target)
            notes = attention_map.notes[:MAX_TOKENS]
            max_columns = MAX_TOKENS if grid is None else None
            rows = attention_map.weights[:MAX_TOKENS, :max_columns]
            weights = [[float(format_weight(weight)) for weight in row] for row in rows]
    shown_source = source if grid is None else str(sample.get("source_text", "")).split()
    return {
        "source": [escape_invisible(token) for token in shown_source[:MAX_TOKENS]],
        "output": [escape_invisible(token) for token in output[:MAX_TOKENS]],
        "reference": _text(sample.get("reference")),
        "text": _text(sample.get("text")),
        "weights": weights,
        "notes": notes,
        "grid": grid if weights else None,
        "is_cut": max(len(shown_source), len(output)) > MAX_TOKENS,
    }


def _grid(sample: Entry) -> tuple[int, int] | None:
    """Return the rows and columns of an image; None of a text, and of too many cells to draw."""
    match sample.get("grid"):
        case [int(rows), int(columns)] if rows > 0 < columns and rows * columns <= MAX_CELLS:
            return rows, columns
    return None


def _tokens(sample: Entry, side: str) -> list[str]:
    tokens = sample.get(side)
    return [str(token) for token in tokens] if isinstance(tokens, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    cut = text[:MAX_TEXT_LENGTH] + ("..." if len(text) > MAX_TEXT_LENGTH else "")
    return "\n".join(map(escape_line, cut.split("\n")))
