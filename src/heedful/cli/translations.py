"""Lines: how is a translation written down?

Every text gives the same number of lines, whatever became of it: one where lines are JSON, else
one for each output that was asked for, empty where there are fewer. A line says nothing of its
neighbours, so lines can be written in several processes and put together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.decoding.alignments import Aligner
    from heedful.decoding.translation import Branch
    from heedful.translator import Translation

_DIGITS = 6


@dataclass(frozen=True)
class Notation:
    """How translations of one model are written down."""

    count: int
    """Outputs of a text."""
    aligner: Aligner
    """How weights become links between words."""

    def lines(self, kind: str, translation: Translation) -> list[str]:
        """All lines of one kind that a translation gives."""
        if kind in _JSON:
            return [to_json(translation, **_JSON[kind])]
        outputs = [translation, *translation.alternatives][: self.count]
        write = {"text": as_text, "scores": as_scores, "alignments": self._as_alignment}[kind]
        return [write(output) for output in outputs] + [""] * (self.count - len(outputs))

    def _as_alignment(self, translation: Translation) -> str:
        from heedful.decoding.alignments import moses, word_alignment

        return moses(word_alignment(translation, self.aligner))


_JSON = {
    "json": {"weights": False, "tree": False},
    "attention": {"weights": True, "tree": False},
    "tree": {"weights": False, "tree": True},
}
KINDS = ("text", "scores", "alignments", *_JSON)


def as_text(translation: Translation) -> str:
    """The output as one line, even where a model wrote the sign that ends lines."""
    return translation.text.replace("\n", " ")


def as_scores(translation: Translation) -> str:
    """The score, the log-probability, and that of each token and the end, parted by tabs."""
    each = " ".join(_decimal(number) for number in translation.log_probs.tolist())
    return "\t".join([_decimal(translation.score), _decimal(translation.log_prob), each])


def to_json(translation: Translation, *, weights: bool = False, tree: bool = False) -> str:
    """A translation as a line of JSON; docs/translate.md explains every field."""
    fields = as_fields(translation, weights=weights)
    if tree and translation.tree is not None:
        fields["tree"] = [_as_node(node) for node in translation.tree]
    return json.dumps(fields, ensure_ascii=False)


def as_fields(translation: Translation, *, weights: bool) -> dict[str, Any]:
    """A translation as plain values."""
    return {
        "source": translation.source,
        "source_tokens": translation.source_tokens,
        **_as_output(translation, weights=weights),
        "alternatives": [_as_output(each, weights=weights) for each in translation.alternatives],
    }


def _as_output(translation: Translation, *, weights: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "text": translation.text,
        "score": _number(translation.score),
        "log_probability": _number(translation.log_prob),
        "tokens": translation.tokens,
        "log_probabilities": _numbers(translation.log_probs.tolist()),
    }
    if weights:
        fields["weights"] = translation.weights.astype("float64").round(_DIGITS).tolist()
        fields["end_weights"] = translation.end_weights.astype("float64").round(_DIGITS).tolist()
    return fields


def _as_node(node: Branch) -> dict[str, Any]:
    return {
        "parent": node.parent,
        "token": node.token,
        "log_probability": _number(node.log_prob),
        "total": _number(node.total),
        "fate": node.fate,
    }


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float) -> float | None:
    """JSON has no word for what is not finite: an output that cannot be is worth null."""
    return round(value, _DIGITS) if math.isfinite(value) else None


def _decimal(value: float) -> str:
    return f"{value:.{_DIGITS}f}"
