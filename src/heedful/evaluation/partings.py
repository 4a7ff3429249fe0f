"""Partings: by what can a test set be parted, and its parts be measured one by one?

Each parting has read what it needs to know of the test set, and parts any outputs of it alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from heedful.evaluation.by_kind import by_kind, by_label
from heedful.evaluation.by_length import by_length
from heedful.evaluation.by_rarity import by_rarity
from heedful.evaluation.groups import Group
from heedful.evaluation.measures import Measure, References, score


class Parting(Protocol):
    """A way to part a test set."""

    @property
    def title(self) -> str:
        """What tells the parts from one another."""
        ...

    def groups(
        self, measure: Measure, outputs: Sequence[str], references: References
    ) -> list[Group]:
        """Measure each part."""
        ...


@dataclass(frozen=True)
class ByLength:
    """By words of the source, so many to a bin."""

    sources: Sequence[str]
    width: int = 5
    title: str = "words of the source"

    def groups(
        self, measure: Measure, outputs: Sequence[str], references: References
    ) -> list[Group]:
        """Measure each bin."""
        asking = partial(score, measure)
        bins = by_length(self.sources, outputs, references, asking, width=self.width)
        return [Group(each.name, each.size, each.metric) for each in bins]


@dataclass(frozen=True)
class ByRarity:
    """By how often the rarest word of a text, the first of several, was seen in training."""

    seen: Mapping[str, int]
    texts: References
    title: str = "times the rarest word was seen"

    def groups(
        self, measure: Measure, outputs: Sequence[str], references: References
    ) -> list[Group]:
        """Measure each bin."""
        asking = partial(score, measure)
        return by_rarity(outputs, references, asking, seen=self.seen, texts=self.texts)


@dataclass(frozen=True)
class ByKind:
    """By what kind of sentence the source is."""

    sources: Sequence[str]
    title: str = "kind of source"

    def groups(
        self, measure: Measure, outputs: Sequence[str], references: References
    ) -> list[Group]:
        """Measure each kind."""
        return by_kind(self.sources, outputs, references, partial(score, measure))


@dataclass(frozen=True)
class ByLabel:
    """By labels that somebody gave."""

    labels: Sequence[str]
    title: str = "label"

    def groups(
        self, measure: Measure, outputs: Sequence[str], references: References
    ) -> list[Group]:
        """Measure each label."""
        return by_label(self.labels, outputs, references, partial(score, measure))
