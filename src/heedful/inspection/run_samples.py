"""Samples of a run: what the model predicted for the same texts at each validation.

Every sample is shown as far as it goes; an attention map only where the weights are valid. A page
holds a bounded number of validations and of weights, the first and the last validation among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap
from heedful.plotting.svg import escape_invisible, escape_line, format_weight

MAX_VALIDATIONS = 100
MAX_WEIGHTS = 1_000_000  # about 6 MB of JSON
MAX_TOKENS = 64  # per side; a larger map is unreadable
MAX_TEXT_LENGTH = 2000  # characters


def group_by_step(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Group samples by step, in order; at most as many steps as a page can hold."""
    steps: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        if isinstance(step := sample.get("step"), int):
            steps.setdefault(step, []).append(sample)
    kept = _evenly_spaced(sorted(steps), _max_steps_shown(steps))
    validations = [
        {"step": step, "items": [_sample_to_dict(sample) for sample in steps[step]]}
        for step in kept
    ]
    return {"validations": validations, "total": len(steps)}


def _max_steps_shown(steps: Mapping[int, Sequence[Mapping[str, Any]]]) -> int:
    """Return how many validations fit, by the largest of them."""
    sizes = [
        sum(min(len(_tokens(sample, side)), MAX_TOKENS) for side in ("source", "output")) ** 2 // 4
        for samples in steps.values()
        for sample in samples
    ]
    num_weights = max(map(len, steps.values()), default=1) * max(sizes, default=1)
    return max(2, min(MAX_VALIDATIONS, MAX_WEIGHTS // max(1, num_weights)))


def _evenly_spaced(steps: Sequence[int], max_count: int) -> list[int]:
    """Return at most `max_count` steps, the first and the last among them."""
    if len(steps) <= max_count:
        return list(steps)
    return [steps[index * (len(steps) - 1) // (max_count - 1)] for index in range(max_count)]


def _sample_to_dict(sample: Mapping[str, Any]) -> dict[str, Any]:
    source, output = (_tokens(sample, side) for side in ("source", "output"))
    return {
        "source": [escape_invisible(token) for token in source[:MAX_TOKENS]],
        "output": [escape_invisible(token) for token in output[:MAX_TOKENS]],
        "reference": _text(sample.get("reference")),
        "text": _text(sample.get("text")),
        "weights": _weights(sample, source, output),
        "is_cut": max(len(source), len(output)) > MAX_TOKENS,
    }


def _tokens(sample: Mapping[str, Any], side: str) -> list[str]:
    tokens = sample.get(side)
    return [str(token) for token in tokens] if isinstance(tokens, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    cut = text[:MAX_TEXT_LENGTH] + ("..." if len(text) > MAX_TEXT_LENGTH else "")
    return "\n".join(map(escape_line, cut.split("\n")))


def _weights(
    sample: Mapping[str, Any], source: Sequence[str], output: Sequence[str]
) -> list[list[float]] | None:
    """Return the weights of the tokens shown; None if they are not an attention map."""
    try:
        weights = np.array(sample.get("weights"), dtype=np.float64)
        attention_map = AttentionMap(source, output, weights) if weights.ndim == 2 else None
    except (DataError, ValueError, TypeError):
        return None
    if attention_map is None or attention_map.is_empty:
        return None
    return [
        [float(format_weight(weight)) for weight in row[:MAX_TOKENS]]
        for row in attention_map.weights[:MAX_TOKENS]
    ]
