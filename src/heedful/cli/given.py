"""Given files: what a command line names instead of the recipe, as overrides of it."""

from __future__ import annotations

import json

from heedful.errors import ConfigError


def given_pairs(split: str, source: str | None, target: str | None) -> list[str]:
    """Two files whose lines belong together."""
    if source is None and target is None:
        return []
    if source is None or target is None:
        prefix = "--" if split == "train" else f"--{split}-"
        given, missing = ("source", "target") if target is None else ("target", "source")
        raise ConfigError(
            f"{prefix}{given}",
            f"given without {prefix}{missing}",
            f"add {prefix}{missing} FILE, whose lines belong to these",
        )
    names = {"kind": "files", "source": source, "target": target}
    return [f"data.{split}={json.dumps(names)}"]


def given_text(split: str, path: str | None) -> list[str]:
    """A file of running text."""
    return [f"data.{split}={json.dumps({'kind': 'text', 'path': path})}"] if path else []
