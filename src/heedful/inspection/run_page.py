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

from heedful.inspection.chart import DARK_LINES, LIGHT_LINES
from heedful.inspection.colours import FAINT, STRONG
from heedful.inspection.framing import frame
from heedful.inspection.labels import visible
from heedful.inspection.run_curves import (
    Entry,
    Timeline,
    draw_charts,
    look_of,
    number,
    of_kind,
    scores_in,
)
from heedful.inspection.run_samples import by_validation

MOST_MARKS = 200
MOST_ROWS = 1000


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines, if there are any; half a line, of a writer at work or killed, is not one."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [entry for line in lines if isinstance(entry := _parsed(line), dict)]


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def draw_run(
    title: str,
    config_text: str,
    entries: Sequence[Entry],
    samples: Sequence[Entry],
) -> str:
    """Write a self-contained page about a training from its metrics and its samples."""
    run = {
        "charts": draw_charts(entries),
        "marks": _marks(entries),
        "facts": _facts(entries),
        "validations": _validations(entries),
        "samples": by_validation(samples),
        "environments": _environments(entries),
        "configuration": readable(config_text),
    }
    return frame(
        "run.html",
        title=title,
        styles=["page.css", "run.css"],
        scripts=["page.js", "charts.js", "run.js"],
        data={"maps": {"strong": STRONG, "faint": FAINT, "sentences": []}, "run": run},
        variables=_line_colours(),
        kind="run",
    )


def readable(text: str) -> str:
    """Write a text so that no character of it is hidden, its spaces and lines as they are."""
    lines = (line.split(" ") for line in text.split("\n"))
    return "\n".join(" ".join(visible(word) if word else "" for word in line) for line in lines)


def _line_colours() -> str:
    light, dark = (
        " ".join(f"--line-{place}: {colour};" for place, colour in enumerate(colours))
        for colours in (LIGHT_LINES, DARK_LINES)
    )
    dark_root = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ {light} }}\n{dark_root}\n"


def _marks(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What happened on the way: where training was gone on with, where steps were skipped."""
    timeline = Timeline(entry for entry in entries if entry.get("kind") != "environment")
    resumed = [entry for entry in entries if entry.get("kind") == "environment"][1:]
    skipped = [entry for entry, count in _skips(entries) if count]
    marks = [("resumed", entry) for entry in resumed] + [("skipped", entry) for entry in skipped]
    # The last say more than the first of what is going on.
    return [
        {"kind": kind, "place": timeline.place({"step": entry.get("step")})}
        for kind, entry in marks[-MOST_MARKS:]
    ]


def _skips(entries: Sequence[Entry]) -> list[tuple[Entry, int]]:
    """Each line of training, and how many steps were skipped since the line before it."""
    training = of_kind(entries, "training")
    counts = [0.0, *(number(entry.get("skipped")) or 0.0 for entry in training)]
    new = [max(0, int(after - before)) for before, after in pairwise(counts)]
    return list(zip(training, new, strict=True))


def _facts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A few numbers that say most of a run."""
    training, held_out = of_kind(entries, "training"), of_kind(entries, "validation")
    if not training and not held_out:
        return []
    last = max(entry["step"] for entry in (*training[-1:], *held_out[-1:]))
    _, seconds, operations = Timeline([*training, *held_out]).place({"step": last})
    speeds = _values(training, "tokens_per_second")
    memory, skips = _values(training, "memory"), sum(count for _, count in _skips(entries))
    epochs = _values(training, "epoch")
    found = [
        _fact("Steps", last, note=f"epoch {epochs[-1]:g}" if epochs else ""),
        _fact("Time", seconds, "seconds"),
        *(_best(name, held_out) for name in ("loss", *scores_in(held_out))),
        _fact("Tokens per second", median(speeds) if speeds else None, note="median"),
        _fact("Peak memory", max(memory, default=None), "bytes"),
        _fact("Operations", operations),
        _fact("Skipped steps", skips or None),
    ]
    return [fact for fact in found if fact["value"] is not None]


def _values(entries: Iterable[Entry], name: str) -> list[float]:
    return [value for entry in entries if (value := number(entry.get(name))) is not None]


def _fact(name: str, value: object, unit: str = "", *, note: str = "") -> dict[str, Any]:
    return {"name": name, "value": number(value), "unit": unit, "note": note}


def _best(name: str, held_out: Sequence[Entry]) -> dict[str, Any]:
    place = _place_of_best(name, held_out)
    if place is None:
        return _fact(name, None)
    entry = held_out[place]
    value, step, look = number(entry[name]), f"step {entry['step']:,}", look_of(name)
    if name == "loss" and value is not None:
        perplexity = math.exp(min(value, 50.0))
        return _fact("Lowest held-out loss", value, note=f"{step}, perplexity {perplexity:.4g}")
    # Names such as BLEU keep their letters.
    short = look.name.lower() if look.name[1:].islower() else look.name
    return _fact(f"Best {short}", value, look.unit, note=step)


def _place_of_best(name: str, held_out: Sequence[Entry]) -> int | None:
    sign = 1 if look_of(name).falls else -1
    known = [
        (sign * value, place)
        for place, entry in enumerate(held_out)
        if (value := number(entry.get(name))) is not None
    ]
    return min(known)[1] if known else None


def _validations(entries: Sequence[Entry]) -> dict[str, Any]:
    every = of_kind(entries, "validation")
    held_out, names = every[-MOST_ROWS:], ["loss", *scores_in(every)]
    timeline = Timeline(entry for entry in entries if entry.get("kind") != "environment")
    return {
        "columns": [look_of(name)._asdict() for name in names],
        "rows": [
            [*timeline.place(entry)[:2], *(number(entry.get(name)) for name in names)]
            for entry in held_out
        ],
        "best": [_place_of_best(name, held_out) for name in names],
        "left_out": len(every) - len(held_out),
    }


def _environments(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Where each stretch of a run was computed: the first in full, then what changed."""
    found, before = list[dict[str, Any]](), dict[str, str]()
    for entry in entries:
        if entry.get("kind") != "environment":
            continue
        facts = dict(_flat({key: entry[key] for key in entry if key not in {"kind", "step"}}))
        changed = [[name, value] for name, value in facts.items() if before.get(name) != value]
        found.append({"step": number(entry.get("step")) or 0, "facts": changed})
        before = facts
    return found


def _flat(value: Mapping[str, Any], at: str = "") -> Iterable[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{at}{key}"
        if isinstance(inner, dict):
            yield from _flat(inner, f"{name}.")
        else:
            words = map(str, inner) if isinstance(inner, list) else [str(inner)]
            yield readable(name), readable(" ".join(words))
