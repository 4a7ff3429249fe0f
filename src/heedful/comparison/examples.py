"""Examples: what do systems make of the same few texts?

Words of an output that the reference has not are marked. Law: the words that are left unmarked
stand in the reference in the same order, and there are as many of them as can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element

from heedful.comparison.markup import node, row_header
from heedful.comparison.results import Comparison

LONGEST = 200  # words of an output that are compared and shown
_SAME = "\u2713"  # a check mark


def draw_example(comparison: Comparison, place: int, names: Sequence[Element]) -> Element:
    """One example: its source, its reference, and what each system of these names made of it."""
    source, reference = comparison.sources[place], comparison.references[place]
    rows = [_row(row_header("source"), [source]), _row(row_header("reference"), [reference])]
    for name, system in zip(names, comparison.systems, strict=True):
        if place < len(system.outputs):
            rows.append(_row(name, _marked(system.outputs[place], reference)))
    caption = node("caption", f"Example {place + 1} of {len(comparison.sources)}")
    return node("table", caption, node("tbody", *rows), look="plain words example")


def _row(name: Element, parts: Sequence[Element | str]) -> Element:
    # Texts are of any language: each finds its own direction.
    return node("tr", name, node("td", *parts, attributes={"dir": "auto"}))


def _marked(output: str, reference: str) -> list[Element | str]:
    """An output with the words that the reference has not in `mark`."""
    if output == reference:
        return [output, node("span", f" {_SAME}", attributes={"title": "as the reference"})]
    if not output.strip():
        return [node("em", "nothing")]
    return list(_parts(output, reference))


def _parts(output: str, reference: str) -> Iterator[Element | str]:
    words = unlike(output.split()[:LONGEST], reference.split()[:LONGEST])
    stretches = [
        (is_other, " ".join(word for word, _ in stretch))
        for is_other, stretch in groupby(words, key=lambda pair: pair[1])
    ]
    for order, (is_other, text) in enumerate(stretches):
        if order:
            yield " "
        yield node("mark", text) if is_other else text
    if len(output.split()) > LONGEST:
        yield " ..."


def unlike(words: Sequence[str], others: Sequence[str]) -> list[tuple[str, bool]]:
    """Each word, and whether it is outside the longest row of words common to both."""
    # common[i][j]: how many words words[i:] and others[j:] have in common, in order.
    common = [[0] * (len(others) + 1) for _ in range(len(words) + 1)]
    for i in reversed(range(len(words))):
        for j in reversed(range(len(others))):
            is_same = words[i] == others[j]
            longer = max(common[i + 1][j], common[i][j + 1])
            common[i][j] = common[i + 1][j + 1] + 1 if is_same else longer
    found, j = list[tuple[str, bool]](), 0
    for i, word in enumerate(words):
        while j < len(others) and word != others[j] and common[i][j + 1] >= common[i + 1][j]:
            j += 1
        is_common = j < len(others) and word == others[j]
        j += is_common
        found.append((word, not is_common))
    return found
