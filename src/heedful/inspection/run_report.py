"""Run pages: how did a training go?

One page, drawn from what the training wrote line by line: its curves, its validations, what it
made of a few held-out texts at each of them and where it looked, its configuration and its
environment. The page is one file that asks nothing of the network, and what it shows enters it as
text (`framing`). A run that has only begun, or whose last line is half a line, can be drawn too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.training_curves import (
    Entry,
    Timeline,
    as_finite_float,
    curve_style,
    entries_of_type,
    make_charts,
    validation_metric_names,
)
from heedful.plotting.charts import DARK_LINE_COLORS, LIGHT_LINE_COLORS
from heedful.plotting.html import render_page
from heedful.plotting.svg import (
    DARK_TEXT_THRESHOLD,
    FAINT_THRESHOLD,
    escape_invisible,
    escape_line,
    escape_text,
    format_weight,
)

# Run samples: what did a model make of the same few texts as it learned?
#
# Whatever was written is shown; a map of attention is drawn only where the weights are those of one
# (`AttentionMap` says which are). A page holds a bounded number of validations and of weights, the
# first and the last among them, and says what it leaves out.

MAX_VALIDATIONS = 100
MAX_WEIGHTS = 1_000_000  # about 6 MB as text
MAX_TOKENS = 64  # of a side; a larger map cannot be read
MAX_TEXT_LENGTH = 2000  # characters


def group_by_step(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Group samples by their step; give those that a page can hold, in order."""
    steps = dict[int, list[Mapping[str, Any]]]()
    for sample in samples:
        if isinstance(step := sample.get("step"), int):
            steps.setdefault(step, []).append(sample)
    kept = _evenly_spaced(sorted(steps), _max_steps_shown(steps))
    shown = [
        {"step": step, "items": [_sample_to_dict(each) for each in steps[step]]} for step in kept
    ]
    return {"validations": shown, "total": len(steps)}


def _max_steps_shown(steps: Mapping[int, Sequence[Mapping[str, Any]]]) -> int:
    """How many validations fit, by the largest of them."""
    sizes = [
        sum(min(len(_tokens(each, side)), MAX_TOKENS) for side in ("source", "output")) ** 2 // 4
        for several in steps.values()
        for each in several
    ]
    widest = max(map(len, steps.values()), default=1) * max(sizes, default=1)
    return max(2, min(MAX_VALIDATIONS, MAX_WEIGHTS // max(1, widest)))


def _evenly_spaced(steps: Sequence[int], max_count: int) -> list[int]:
    """At most so many of some steps, spread evenly, the first and the last among them."""
    if len(steps) <= max_count:
        return list(steps)
    return [steps[index * (len(steps) - 1) // (max_count - 1)] for index in range(max_count)]


def _sample_to_dict(sample: Mapping[str, Any]) -> dict[str, Any]:
    source, output = (_tokens(sample, side) for side in ("source", "output"))
    weights = _weights(sample, source, output)
    return {
        "source": [escape_invisible(token) for token in source[:MAX_TOKENS]],
        "output": [escape_invisible(token) for token in output[:MAX_TOKENS]],
        "reference": _text(sample.get("reference")),
        "text": _text(sample.get("text")),
        "weights": weights,
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
    """The weights of the tokens that are shown; None if there are none that can be drawn."""
    try:
        weights = np.array(sample.get("weights"), dtype=np.float64)
        drawn = AttentionMap(source, output, weights) if weights.ndim == 2 else None
    except (DataError, ValueError, TypeError):
        return None
    if drawn is None or drawn.is_empty:
        return None
    return [
        [float(format_weight(share)) for share in row[:MAX_TOKENS]]
        for row in drawn.weights[:MAX_TOKENS]
    ]


MAX_MARKS = 200


MAX_ROWS = 1000


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines, if there are any; half a line, of a writer at work or killed, is not one."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [entry for line in lines if isinstance(entry := _parse_line(line), dict)]


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def render_run_page(
    title: str,
    config_text: str,
    entries: Sequence[Entry],
    samples: Sequence[Entry],
) -> str:
    """Write a self-contained page about a training from its metrics and its samples."""
    run = {
        "charts": make_charts(entries),
        "marks": _marks(entries),
        "facts": _key_figures(entries),
        "validations": _validations(entries),
        "samples": group_by_step(samples),
        "environments": _environments(entries),
        "configuration": escape_text(config_text),
    }
    return render_page(
        "run.html",
        title=title,
        styles=["page.css", "run.css"],
        scripts=["page.js", "charts.js", "run.js"],
        data={
            "maps": {"strong": DARK_TEXT_THRESHOLD, "faint": FAINT_THRESHOLD, "sentences": []},
            "run": run,
        },
        variables=_line_colours(),
        page_type="run",
    )


def _line_colours() -> str:
    light, dark = (
        " ".join(f"--line-{index}: {colour};" for index, colour in enumerate(colours))
        for colours in (LIGHT_LINE_COLORS, DARK_LINE_COLORS)
    )
    dark_root = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ {light} }}\n{dark_root}\n"


def _marks(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What happened on the way: where training was gone on with, where steps were skipped."""
    timeline = Timeline(entry for entry in entries if entry.get("type") != "environment")
    resumed = [entry for entry in entries if entry.get("type") == "environment"][1:]
    skipped = [entry for entry, count in _skipped_steps(entries) if count]
    marks = [("resumed", entry) for entry in resumed] + [("skipped", entry) for entry in skipped]
    # The last say more than the first of what is going on.
    return [
        {"kind": kind, "place": timeline.locate({"step": entry.get("step")})}
        for kind, entry in marks[-MAX_MARKS:]
    ]


def _skipped_steps(entries: Sequence[Entry]) -> list[tuple[Entry, int]]:
    """Each line of training, and how many steps were skipped since the line before it."""
    training = entries_of_type(entries, "training")
    counts = [0.0, *(as_finite_float(entry.get("num_skipped_steps")) or 0.0 for entry in training)]
    new = [max(0, int(after - before)) for before, after in pairwise(counts)]
    return list(zip(training, new, strict=True))


def _key_figures(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A few numbers that say most of a run."""
    training, held_out = (
        entries_of_type(entries, "training"),
        entries_of_type(entries, "validation"),
    )
    if not training and not held_out:
        return []
    last = max(entry["step"] for entry in (*training[-1:], *held_out[-1:]))
    _, seconds, operations = Timeline([*training, *held_out]).locate({"step": last})
    speeds = _values(training, "tokens_per_second")
    memory, skips = (
        _values(training, "peak_memory"),
        sum(count for _, count in _skipped_steps(entries)),
    )
    epochs = _values(training, "epoch")
    found = [
        _key_figure("Steps", last, note=f"epoch {epochs[-1]:g}" if epochs else ""),
        _key_figure("Time", seconds, "seconds"),
        *(_best(name, held_out) for name in ("loss", *validation_metric_names(held_out))),
        _key_figure("Tokens per second", median(speeds) if speeds else None, note="median"),
        _key_figure("Peak memory", max(memory, default=None), "bytes"),
        _key_figure("Operations", operations),
        _key_figure("Skipped steps", skips or None),
    ]
    return [fact for fact in found if fact["value"] is not None]


def _values(entries: Iterable[Entry], name: str) -> list[float]:
    return [value for entry in entries if (value := as_finite_float(entry.get(name))) is not None]


def _key_figure(name: str, value: object, unit: str = "", *, note: str = "") -> dict[str, Any]:
    return {"name": name, "value": as_finite_float(value), "unit": unit, "note": note}


def _best(name: str, validations: Sequence[Entry]) -> dict[str, Any]:
    index = _best_index(name, validations)
    if index is None:
        return _key_figure(name, None)
    entry = validations[index]
    value, step, style = as_finite_float(entry[name]), f"step {entry['step']:,}", curve_style(name)
    if name == "loss" and value is not None:
        perplexity = math.exp(min(value, 50.0))
        return _key_figure(
            "Lowest held-out loss", value, note=f"{step}, perplexity {perplexity:.4g}"
        )
    # Names such as BLEU keep their letters.
    short = style.name.lower() if style.name[1:].islower() else style.name
    return _key_figure(f"Best {short}", value, style.unit, note=step)


def _best_index(name: str, validations: Sequence[Entry]) -> int | None:
    sign = 1 if curve_style(name).lower_is_better else -1
    known = [
        (sign * value, index)
        for index, entry in enumerate(validations)
        if (value := as_finite_float(entry.get(name))) is not None
    ]
    return min(known)[1] if known else None


def _validations(entries: Sequence[Entry]) -> dict[str, Any]:
    every = entries_of_type(entries, "validation")
    held_out, names = every[-MAX_ROWS:], ["loss", *validation_metric_names(every)]
    timeline = Timeline(entry for entry in entries if entry.get("type") != "environment")
    return {
        "columns": [curve_style(name)._asdict() for name in names],
        "rows": [
            [*timeline.locate(entry)[:2], *(as_finite_float(entry.get(name)) for name in names)]
            for entry in held_out
        ],
        "best": [_best_index(name, held_out) for name in names],
        "left_out": len(every) - len(held_out),
    }


def _environments(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Where each stretch of a run was computed: the first in full, then what changed."""
    found, before = list[dict[str, Any]](), dict[str, str]()
    for entry in entries:
        if entry.get("type") != "environment":
            continue
        facts = dict(_flatten({key: entry[key] for key in entry if key not in {"type", "step"}}))
        changed = [[name, value] for name, value in facts.items() if before.get(name) != value]
        found.append({"step": as_finite_float(entry.get("step")) or 0, "facts": changed})
        before = facts
    return found


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            yield from _flatten(inner, f"{name}.")
        else:
            words = map(str, inner) if isinstance(inner, list) else [str(inner)]
            yield escape_text(name), escape_text(" ".join(words))
