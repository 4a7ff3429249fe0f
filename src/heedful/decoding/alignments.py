"""Alignments of outputs: which token of the source does each token of the output come from?

Links are read off the weights of attention. Laws: no link is to an end symbol; argmax links a token
to at most one place; symmetrised links lie between the intersection and the union of what the rows
and what the columns choose; links are sorted by target, then by source. The Moses form of a link
is "source-target", counted from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.translation import NO_WORD, Translation
from heedful.errors import ConfigError, DataError, did_you_mean

Weights = NDArray[np.floating[Any]]
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class Link(NamedTuple):
    """A token or word of the output comes from one of the source."""

    source: int
    target: int


class Aligner(ABC):
    """A way to read links off weights (tokens, source tokens), the last of which is the end."""

    @abstractmethod
    def links(self, weights: Weights) -> set[Link]:
        """Find the links; none is to the end."""


class Argmax(Aligner):
    """Each token comes from where it looked most; from nowhere, if that is the end."""

    def links(self, weights: Weights) -> set[Link]:
        """Choose in every row."""
        end = weights.shape[1] - 1
        return {link for link in _chosen_by_rows(weights) if link.source != end}


class Threshold(Aligner):
    """Each token comes from wherever its weight is at least so much."""

    def __init__(self, least: float) -> None:
        self.least = least

    def links(self, weights: Weights) -> set[Link]:
        """Choose wherever there is weight enough."""
        places = np.argwhere(weights[:, :-1] >= self.least).tolist()
        return {Link(source, target) for target, source in places}


class Symmetrised(Aligner):
    """What tokens of the output choose, and what tokens of the source choose, made one."""

    def links(self, weights: Weights) -> set[Link]:
        """Let both sides choose, and grow from what they agree on."""
        by_columns = {Link(*link[::-1]) for link in _chosen_by_rows(weights[:, :-1].T)}
        return grow_diag_final_and(Argmax().links(weights), by_columns)


def choose_aligner(name: str, *, at: str) -> Aligner:
    """Find the aligner called argmax, symmetrised, or threshold=0.2."""
    kind, _, least = name.partition("=")
    if name in _PLAIN:
        return _PLAIN[name]
    if kind != "threshold":
        near = did_you_mean(kind, [*_PLAIN, "threshold"])
        raise ConfigError(at, f"no alignment is called {kind!r}{near}", _CHOICES)
    try:
        share = float(least)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(at, f"{least!r} is no weight", "give more than 0 and at most 1")
    return Threshold(share)


_PLAIN: Mapping[str, Aligner] = {"argmax": Argmax(), "symmetrised": Symmetrised()}
_CHOICES = "choose from: argmax, symmetrised, threshold=0.2 (or another weight)"


def align(weights: Weights, how: Aligner) -> list[Link]:
    """Read links off weights (tokens, source tokens), the last of which is the end."""
    return _ordered(how.links(weights))


def by_words(
    links: Iterable[Link], source_owner: Sequence[int], owner: Sequence[int]
) -> list[Link]:
    """Say which words links of tokens are between; what belongs to no word has none."""
    found = {Link(source_owner[source], owner[target]) for source, target in links}
    return _ordered(link for link in found if NO_WORD not in link)


def word_alignment(translation: Translation, how: Aligner) -> list[Link]:
    """Link the words of a translation, parted by white space, to those of its source."""
    links = align(translation.weights, how)
    return by_words(links, translation.source_owner, translation.owner)


def moses(links: Iterable[Link]) -> str:
    """Write links as "0-0 1-2"."""
    return " ".join(f"{link.source}-{link.target}" for link in links)


def read_moses(text: str, *, at: str = "alignment") -> list[Link]:
    """Read links written as "0-0 1-2"."""
    links = list[Link]()
    for word in text.split():
        source, dash, target = word.partition("-")
        if not (dash and source.isdecimal() and target.isdecimal()):
            raise DataError(at, f"{word!r} is not a link", 'write links as "0-0 1-2"')
        links.append(Link(int(source), int(target)))
    return links


def grow_diag_final_and(one: set[Link], other: set[Link]) -> set[Link]:
    """Grow an alignment from what two agree on (Och and Ney 2003; Koehn et al. 2003, section 4.5).

    First neighbours of links are taken over from the union, again and again, if one of their
    tokens has no link yet; in the end what is left of each of the two, if neither has.
    """
    grown = _Growing(one & other)
    while grown.take_neighbours(_ordered(one | other)):
        pass
    for link in [*_ordered(one), *_ordered(other)]:
        if link.source not in grown.sources and link.target not in grown.targets:
            grown.add(link)
    return grown.links


class _Growing:
    """Links, and the tokens that have some."""

    def __init__(self, links: set[Link]) -> None:
        self.links = set(links)
        self.sources = {link.source for link in links}
        self.targets = {link.target for link in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link.source)
        self.targets.add(link.target)

    def take_neighbours(self, union: Sequence[Link]) -> bool:
        """Go once through all links, new ones included; say whether any came to them."""
        before, within = len(self.links), set(union)
        for link in union:
            if link in self.links:
                for across, along in _NEIGHBOURS:
                    self._consider(Link(link.source + along, link.target + across), within)
        return len(self.links) > before

    def _consider(self, link: Link, union: set[Link]) -> None:
        is_wanting = link.source not in self.sources or link.target not in self.targets
        if is_wanting and link in union:
            self.add(link)


def _ordered(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (link.target, link.source))


def _chosen_by_rows(weights: Weights) -> set[Link]:
    """Link every row that looked anywhere to its largest weight, the first if there are several."""
    if not weights.size:
        return set()
    best = weights.argmax(axis=1)
    return {Link(int(best[row]), row) for row in np.flatnonzero(weights.any(axis=1)).tolist()}
