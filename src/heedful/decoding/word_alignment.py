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

from heedful.decoding.translation import NO_WORD_ID, Translation
from heedful.errors import ConfigError, DataError, did_you_mean

Weights = NDArray[np.floating[Any]]
_NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class Link(NamedTuple):
    """A token or word of the output comes from one of the source."""

    source: int
    target: int


class Aligner(ABC):
    """A way to read links off weights (tokens, source tokens), the last of which is the end."""

    @abstractmethod
    def links(self, weights: Weights) -> set[Link]:
        """Find the links; none is to the end."""


class ArgmaxAligner(Aligner):
    """Each token comes from where it looked most; from nowhere, if that is the end."""

    def links(self, weights: Weights) -> set[Link]:
        """Choose in every row."""
        end = weights.shape[1] - 1
        return {link for link in _argmax_links(weights) if link.source != end}


class ThresholdAligner(Aligner):
    """Each token comes from wherever its weight is at least so much."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def links(self, weights: Weights) -> set[Link]:
        """Choose wherever there is weight enough."""
        places = np.argwhere(weights[:, :-1] >= self.threshold).tolist()
        return {Link(source, target) for target, source in places}


class SymmetrizedAligner(Aligner):
    """What tokens of the output choose, and what tokens of the source choose, made one."""

    def links(self, weights: Weights) -> set[Link]:
        """Let both sides choose, and grow from what they agree on."""
        by_columns = {Link(*link[::-1]) for link in _argmax_links(weights[:, :-1].T)}
        return grow_diag_final_and(ArgmaxAligner().links(weights), by_columns)


def get_aligner(name: str, *, location: str) -> Aligner:
    """Find the aligner called argmax, symmetrised, or threshold=0.2."""
    kind, _, least = name.partition("=")
    if name in _NAMED_ALIGNERS:
        return _NAMED_ALIGNERS[name]
    if kind != "threshold":
        near = did_you_mean(kind, [*_NAMED_ALIGNERS, "threshold"])
        raise ConfigError(location, f"no alignment is called {kind!r}{near}", _CHOICES_HINT)
    try:
        share = float(least)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(location, f"{least!r} is no weight", "give more than 0 and at most 1")
    return ThresholdAligner(share)


_NAMED_ALIGNERS: Mapping[str, Aligner] = {
    "argmax": ArgmaxAligner(),
    "symmetrized": SymmetrizedAligner(),
}
_CHOICES_HINT = "choose from: argmax, symmetrised, threshold=0.2 (or another weight)"


def extract_links(weights: Weights, aligner: Aligner) -> list[Link]:
    """Read links off weights (tokens, source tokens), the last of which is the end."""
    return _ordered(aligner.links(weights))


def to_word_links(
    links: Iterable[Link], source_word_ids: Sequence[int], word_ids: Sequence[int]
) -> list[Link]:
    """Say which words links of tokens are between; what belongs to no word has none."""
    found = {Link(source_word_ids[source], word_ids[target]) for source, target in links}
    return _ordered(link for link in found if NO_WORD_ID not in link)


def word_alignment(translation: Translation, aligner: Aligner) -> list[Link]:
    """Link the words of a translation, parted by white space, to those of its source."""
    links = extract_links(translation.weights, aligner)
    return to_word_links(links, translation.source_word_ids, translation.word_ids)


def format_pharaoh(links: Iterable[Link]) -> str:
    """Write links as "0-0 1-2"."""
    return " ".join(f"{link.source}-{link.target}" for link in links)


def parse_pharaoh(text: str, *, location: str = "alignment") -> list[Link]:
    """Read links written as "0-0 1-2"."""
    links = list[Link]()
    for word in text.split():
        source, dash, target = word.partition("-")
        if not (dash and source.isdecimal() and target.isdecimal()):
            raise DataError(location, f"{word!r} is not a link", 'write links as "0-0 1-2"')
        links.append(Link(int(source), int(target)))
    return links


def grow_diag_final_and(forward_links: set[Link], backward_links: set[Link]) -> set[Link]:
    """Grow an alignment from what two agree on (Och and Ney 2003; Koehn et al. 2003, section 4.5).

    First neighbours of links are taken over from the union, again and again, if one of their
    tokens has no link yet; in the end what is left of each of the two, if neither has.
    """
    grown = _GrowingAlignment(forward_links & backward_links)
    while grown.add_neighbors(_ordered(forward_links | backward_links)):
        pass
    for link in [*_ordered(forward_links), *_ordered(backward_links)]:
        if link.source not in grown.sources and link.target not in grown.targets:
            grown.add(link)
    return grown.links


class _GrowingAlignment:
    """Links, and the tokens that have some."""

    def __init__(self, links: set[Link]) -> None:
        self.links = set(links)
        self.sources = {link.source for link in links}
        self.targets = {link.target for link in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link.source)
        self.targets.add(link.target)

    def add_neighbors(self, union: Sequence[Link]) -> bool:
        """Go once through all links, new ones included; say whether any came to them."""
        before, within = len(self.links), set(union)
        for link in union:
            if link in self.links:
                for across, along in _NEIGHBORS:
                    self._add_if_unaligned(Link(link.source + along, link.target + across), within)
        return len(self.links) > before

    def _add_if_unaligned(self, link: Link, union: set[Link]) -> None:
        is_wanting = link.source not in self.sources or link.target not in self.targets
        if is_wanting and link in union:
            self.add(link)


def _ordered(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (link.target, link.source))


def _argmax_links(weights: Weights) -> set[Link]:
    """Link every row that looked anywhere to its largest weight, the first if there are several."""
    if not weights.size:
        return set()
    best = weights.argmax(axis=1)
    return {Link(int(best[row]), row) for row in np.flatnonzero(weights.any(axis=1)).tolist()}
