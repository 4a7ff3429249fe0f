"""Maps of chosen kinds, layers and heads of a prediction, as options of `heedful show` name them.

Invariant: the mean over heads or layers, and joining subwords into words, keep what rows sum to.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from heedful.errors import RunError, check
from heedful.inspection.attention_layers import BACKWARD, AttentionLayer
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.mechanism_overlays import Overlays

MEAN = 0
"""Stands for the mean over all layers or heads, which are counted from 1."""

_TITLES = {"cross": "cross-attention", "pooling": "attention pooling", "copy": "copying"}
_AXIS_NAMES = {
    "cross": ("output", "source"),
    "copy": ("output", "source"),
    "pooling": ("label", "source"),
}


class AttentionSelection(NamedTuple):
    """Which attention to draw, as options of `show` name it; empty options mean the default."""

    kinds: Sequence[str] = ()
    layers: Sequence[str] = ()
    heads: Sequence[str] = ()
    joins_words: bool = False

    def select(self, layers: Sequence[AttentionLayer], base: AttentionMap) -> list[AttentionMap]:
        """Return `base`, the map of a prediction, with the weights of each selected layer."""
        kinds = list(dict.fromkeys(layer.kind for layer in layers))
        defaults = [layer.kind for layer in layers if layer.is_default]
        if not defaults and not base.is_empty and not any(self):
            return [base]
        message = "this model has no layers with one attention weight per token"
        check(bool(layers), "--kind", message, "leave out --kind, --layer, --head and --words")
        maps = []
        forward_last = sorted(kinds, key=lambda kind: not kind.endswith(BACKWARD))
        for kind in self._select_kinds(kinds, [*defaults, forward_last[-1]]):
            of_kind = [layer for layer in layers if layer.kind == kind]
            num_layers, num_heads = len(of_kind), max(len(layer.weights) for layer in of_kind)
            is_mean = num_layers > 1 and all(layer.is_default for layer in of_kind)
            default = "mean" if is_mean else "last"
            for number in parse_numbers(self.layers or [default], num_layers, "--layer"):
                members = of_kind if number == MEAN else [of_kind[number - 1]]
                for head in parse_numbers(self.heads or ["mean"], num_heads, "--head"):
                    names = [
                        _title(kind),
                        *_describe(number, num_layers, "layer"),
                        *_describe(head, num_heads, "head"),
                    ]
                    maps.append(self._build_map(members, head, base, ", ".join(names)))
        return maps

    def select_of(self, result: Any, location: str, note: str = "") -> list[AttentionMap]:
        """Return the selected maps of a prediction, with a note; its own if that is empty."""
        source = getattr(result, "source", "")
        titles = (source, result.text) if source else (result.text, "")
        base = result.attention_map or AttentionMap.empty(*titles)
        if result.attention_map is not None and base.is_empty:
            return [base]
        message, hint = (
            "this model has no attention to draw",
            "name a run of a model with attention",
        )
        has_attention = bool(result.attention_layers) or base.weights.any()
        check(has_attention, location, message, hint, RunError)
        maps = self.select(result.attention_layers, base)
        captions = (", ".join(filter(None, (drawn.caption, note))) for drawn in maps)
        return [replace(drawn, caption=text) for drawn, text in zip(maps, captions, strict=True)]

    def count_heads(self, layers: Sequence[AttentionLayer]) -> int:
        """Return how many heads of a layer are drawn, at most."""
        if not layers:  # of an empty output
            return 1
        num_heads = max(len(layer.weights) for layer in layers)
        return len(parse_numbers(self.heads or ["mean"], num_heads, "--head"))

    def _select_kinds(self, kinds: Sequence[str], defaults: Sequence[str]) -> Sequence[str]:
        if "all" in self.kinds:
            return kinds
        for kind in self.kinds:
            message = f"this model has no attention of kind {kind!r}"
            hint = f"choose from: {', '.join([*kinds, 'all'])}"
            check(kind in kinds, "--kind", message, hint)
        return self.kinds or defaults[:1]

    def _build_map(
        self, members: Sequence[AttentionLayer], head: int, base: AttentionMap, caption: str
    ) -> AttentionMap:
        queries, keys = members[0].queries, members[0].keys
        of_layers = [
            layer.weights.mean(axis=0) if head == MEAN else layer.weights[head - 1]
            for layer in members
        ]
        weights = np.mean(of_layers, axis=0)
        selected = replace(
            base,
            source=list(keys.tokens),
            target=list(queries.tokens),
            weights=weights,
            caption=caption,
            copy_probs=queries.copy_probs,
            grid=keys.grid,
            gates=_mean_gates(members, head),
            overlays=_head_overlays(members, head),
            is_intra=members[0].is_intra,
            axis_names=_AXIS_NAMES.get(members[0].kind, ("query", "key")),
        )
        joins_words = self.joins_words and weights.size
        return selected.join(queries.groups(), keys.groups()) if joins_words else selected


def _mean_gates(members: Sequence[AttentionLayer], head: int) -> Sequence[float] | None:
    """Return the gates of a head, or the mean over heads and layers; None if a layer has none."""
    gates = [layer.gates for layer in members if layer.gates is not None]
    if len(gates) < len(members):
        return None
    of_layers = [gate.mean(axis=0) if head == MEAN else gate[head - 1] for gate in gates]
    return np.mean(of_layers, axis=0).tolist()


def _head_overlays(members: Sequence[AttentionLayer], head: int) -> Overlays:
    """Return the overlays of a head; a mean over heads or layers has no window and no pointer."""
    first, *others = members
    is_mean = others or (head == MEAN and len(first.weights) > 1)
    return {} if is_mean else first.overlays_of(max(head - 1, 0))


def _title(kind: str) -> str:
    forward = kind.removesuffix(BACKWARD)
    title = _TITLES.get(forward, f"{forward.replace('-', ' ')}-attention")
    return title if forward == kind else f"{title}, backward"


def _describe(number: int, count: int, name: str) -> list[str]:
    if count == 1:
        return []
    return [f"mean of {count} {name}s" if number == MEAN else f"{name} {number} of {count}"]


def parse_numbers(values: Sequence[str], count: int, option: str) -> list[int]:
    """Parse numbers from 1 to `count`: "2", "1,3", "2-4", "last", "all"; "mean" is `MEAN`."""
    numbers: list[int] = []
    for value in (part.strip() for text in values for part in text.split(",")):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if value == "mean":
            numbers.append(MEAN)
        elif value == "last":
            numbers.append(count)
        elif value == "all":
            numbers += range(1, count + 1)
        else:
            first = int(bounds[1]) if bounds else 0
            last = int(bounds[2] or first) if bounds else 0
            message = f"there is no {option.removeprefix('--')} {value!r}: this model has {count}"
            hint = "give numbers such as 1 or 1,3 or 2-4, or: all, mean, last"
            check(1 <= first <= last <= count, option, message, hint)
            numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))
