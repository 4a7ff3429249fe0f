"""Run samples: what did a model make of the same few texts as it learned?

Whatever was written is shown; a map of attention is drawn only where the weights are those of one
(`AttentionMap` says which are). A page holds a bounded number of validations and of weights, the
first and the last among them, and says what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.labels import exact, visible, visible_line

MOST_VALIDATIONS = 100
MOST_WEIGHTS = 1_000_000  # about 6 MB as text
MOST_TOKENS = 64  # of a side; a larger map cannot be read
LONGEST_TEXT = 2000  # characters


def by_validation(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Group samples by their step; give those that a page can hold, in order."""
    steps = dict[int, list[Mapping[str, Any]]]()
    for sample in samples:
        if isinstance(step := sample.get("step"), int):
            steps.setdefault(step, []).append(sample)
    kept = _spread(sorted(steps), _room(steps))
    shown = [{"step": step, "items": [_item(each) for each in steps[step]]} for step in kept]
    return {"validations": shown, "total": len(steps)}


def _room(steps: Mapping[int, Sequence[Mapping[str, Any]]]) -> int:
    """How many validations fit, by the largest of them."""
    sizes = [
        sum(min(len(_tokens(each, side)), MOST_TOKENS) for side in ("source", "output")) ** 2 // 4
        for several in steps.values()
        for each in several
    ]
    widest = max(map(len, steps.values()), default=1) * max(sizes, default=1)
    return max(2, min(MOST_VALIDATIONS, MOST_WEIGHTS // max(1, widest)))


def _spread(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of some steps, spread evenly, the first and the last among them."""
    if len(steps) <= most:
        return list(steps)
    return [steps[place * (len(steps) - 1) // (most - 1)] for place in range(most)]


def _item(sample: Mapping[str, Any]) -> dict[str, Any]:
    source, output = (_tokens(sample, side) for side in ("source", "output"))
    weights = _weights(sample, source, output)
    return {
        "source": [visible(token) for token in source[:MOST_TOKENS]],
        "output": [visible(token) for token in output[:MOST_TOKENS]],
        "reference": _text(sample.get("reference")),
        "text": _text(sample.get("text")),
        "weights": weights,
        "is_cut": max(len(source), len(output)) > MOST_TOKENS,
    }


def _tokens(sample: Mapping[str, Any], side: str) -> list[str]:
    tokens = sample.get(side)
    return [str(token) for token in tokens] if isinstance(tokens, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    cut = text[:LONGEST_TEXT] + ("..." if len(text) > LONGEST_TEXT else "")
    return "\n".join(map(visible_line, cut.split("\n")))


def _weights(
    sample: Mapping[str, Any], source: Sequence[str], output: Sequence[str]
) -> list[list[float]] | None:
    """The weights of the tokens that are shown; None if there are none that can be drawn."""
    try:
        weights = np.array(sample.get("weights"), dtype=np.float64)
        drawn = AttentionMap(source, output, weights) if weights.ndim == 2 else None
    except (DataError, ValueError, TypeError):
        return None
    if drawn is None or drawn.is_empty:
        return None
    return [
        [float(exact(share)) for share in row[:MOST_TOKENS]] for row in drawn.weights[:MOST_TOKENS]
    ]
