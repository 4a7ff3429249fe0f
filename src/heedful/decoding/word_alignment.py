"""Word alignments of outputs, read off attention weights.

Invariants: no link points to EOS; argmax links a token to at most one source token; symmetrized
links lie between the intersection and the union of both directions; links are sorted by target,
then by source. The Pharaoh format of a link is "source-target", counted from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.decoding.token_texts import NO_WORD_ID
from heedful.decoding.translation import Translation
from heedful.errors import ConfigError, DataError, check, did_you_mean

Weights = NDArray[np.floating[Any]]
"""Attention weights (tokens, source tokens); the last source token is EOS."""
_NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class Link(NamedTuple):
    """A link between a source and a target token or word."""

    source: int
    target: int


class Aligner(ABC):
    """A way to turn weights into links."""

    @abstractmethod
    def links(self, weights: Weights) -> set[Link]:
        """Return the links, without those to EOS."""


class ArgmaxAligner(Aligner):
    """Link each token to its largest weight, unless that is EOS."""

    @override
    def links(self, weights: Weights) -> set[Link]:
        eos = weights.shape[1] - 1
        return {link for link in _argmax_links(weights) if link.source != eos}


class ThresholdAligner(Aligner):
    """Link wherever the weight reaches the threshold."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    @override
    def links(self, weights: Weights) -> set[Link]:
        indices = np.argwhere(weights[:, :-1] >= self.threshold).tolist()
        return {Link(source, target) for target, source in indices}


class SymmetrizedAligner(Aligner):
    """Argmax over rows and over columns, symmetrized by grow-diag-final-and."""

    @override
    def links(self, weights: Weights) -> set[Link]:
        by_columns = {Link(*link[::-1]) for link in _argmax_links(weights[:, :-1].T)}
        return grow_diag_final_and(ArgmaxAligner().links(weights), by_columns)


_NAMED_ALIGNERS: Mapping[str, Aligner] = {
    "argmax": ArgmaxAligner(),
    "symmetrized": SymmetrizedAligner(),
}


def get_aligner(name: str, *, location: str) -> Aligner:
    """Return the aligner called argmax, symmetrized, or threshold=0.2."""
    if name in _NAMED_ALIGNERS:
        return _NAMED_ALIGNERS[name]
    method, _, value = name.partition("=")
    check(
        method == "threshold",
        location,
        f"unknown alignment method {method!r}"
        f"{did_you_mean(method, [*_NAMED_ALIGNERS, 'threshold'])}",
        "choose from: argmax, symmetrized, threshold=0.2 (or another weight)",
    )
    try:
        threshold = float(value)
        is_valid = 0 < threshold <= 1
    except ValueError:
        is_valid = False
    if not is_valid:
        message = f"the threshold must be above 0 and at most 1, but is {value!r}"
        raise ConfigError(location, message, "write threshold=0.2, for example")
    return ThresholdAligner(threshold)


def extract_links(weights: Weights, aligner: Aligner) -> list[Link]:
    """Return the links between tokens, sorted."""
    return _sorted_links(aligner.links(weights))


def to_word_links(
    links: Iterable[Link], source_word_ids: Sequence[int], word_ids: Sequence[int]
) -> list[Link]:
    """Map links between tokens to links between words; tokens without a word have none."""
    word_links = {Link(source_word_ids[source], word_ids[target]) for source, target in links}
    return _sorted_links(link for link in word_links if NO_WORD_ID not in link)


def word_alignment(translation: Translation, aligner: Aligner) -> list[Link]:
    """Return the links between whitespace-separated words of a translation and its source."""
    links = extract_links(translation.weights, aligner)
    return to_word_links(links, translation.source_word_ids, translation.word_ids)


def format_pharaoh(links: Iterable[Link]) -> str:
    """Return links as "0-0 1-2"."""
    return " ".join(f"{link.source}-{link.target}" for link in links)


def parse_pharaoh(text: str, *, location: str = "alignment") -> list[Link]:
    """Read links written as "0-0 1-2"."""
    links: list[Link] = []
    for word in text.split():
        source, dash, target = word.partition("-")
        is_link = bool(dash) and source.isdecimal() and target.isdecimal()
        check(is_link, location, f"{word!r} is not a link", 'write links as "0-0 1-2"', DataError)
        links.append(Link(int(source), int(target)))
    return links


def grow_diag_final_and(forward_links: set[Link], backward_links: set[Link]) -> set[Link]:
    """Symmetrize two alignments (Och and Ney 2003; Koehn et al. 2003, section 4.5).

    Starts with the intersection; adds neighbors of links that are in the union, repeatedly, if one
    of their tokens has no link; finally adds links of either direction if neither token has one.
    """
    grown = _GrowingAlignment(forward_links & backward_links)
    while grown.add_neighbors(_sorted_links(forward_links | backward_links)):
        pass
    for link in [*_sorted_links(forward_links), *_sorted_links(backward_links)]:
        if link.source not in grown.sources and link.target not in grown.targets:
            grown.add(link)
    return grown.links


class _GrowingAlignment:
    """Links and the tokens that they cover."""

    def __init__(self, links: set[Link]) -> None:
        self.links = set(links)
        self.sources = {link.source for link in links}
        self.targets = {link.target for link in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link.source)
        self.targets.add(link.target)

    def add_neighbors(self, union: Sequence[Link]) -> bool:
        """Pass once over all links, including new ones; return True if any was added."""
        count, allowed = len(self.links), set(union)
        for link in union:
            if link in self.links:
                for target_step, source_step in _NEIGHBORS:
                    neighbor = Link(link.source + source_step, link.target + target_step)
                    is_uncovered = (
                        neighbor.source not in self.sources or neighbor.target not in self.targets
                    )
                    if is_uncovered and neighbor in allowed:
                        self.add(neighbor)
        return len(self.links) > count


def _sorted_links(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (link.target, link.source))


def _argmax_links(weights: Weights) -> set[Link]:
    """Link every row with any weight to its largest, the first of equal ones."""
    if not weights.size:
        return set()
    best = weights.argmax(axis=1)
    return {Link(int(best[row]), row) for row in np.flatnonzero(weights.any(axis=1)).tolist()}
