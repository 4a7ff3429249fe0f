"""Links between the words of a sentence pair: Pharaoh format and symmetrization.

Invariants: a symmetrized alignment lies between the intersection and the union of both directions;
links are written by target, then by source. A link in Pharaoh format is "source-target", counted
from 0; in gold alignments "1?2" or "1p2" is a possible link, which may be predicted or not.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from heedful.errors import DataError, check

Symmetrization = Literal[
    "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
]
_NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


class Link(NamedTuple):
    """A link between a source and a target token or word."""

    source: int
    target: int


class AlignmentLinks(NamedTuple):
    """Links of a sentence pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # includes the sure ones


def parse_alignment(line: str, *, location: str = "alignment") -> AlignmentLinks:
    """Parse the links of a sentence pair in the Pharaoh format of Moses.

    "0-0 1-2" links source word 0 with target word 0, and 1 with 2. In gold alignments "1-2" is a
    sure link and "1?2" or "1p2" a possible one; sure links are also possible links.
    """
    hint = "write 0-2 for a sure link from word 0 to word 2, 0?2 for a possible one"
    for word in line.split():
        message = f"{word!r} is not an alignment link"
        check(_LINK.fullmatch(word), location, message, hint, DataError)
    links = [(Link(int(one), int(other)), sign) for one, sign, other in _LINK.findall(line)]
    sure = frozenset(link for link, sign in links if sign == "-")
    return AlignmentLinks(sure, frozenset(link for link, _ in links))


def format_pharaoh(links: Iterable[Link]) -> str:
    """Return links as "0-0 1-2"."""
    return " ".join(f"{link.source}-{link.target}" for link in links)


def sort_links(links: Iterable[Link]) -> list[Link]:
    """Sort links by target, then by source."""
    return sorted(links, key=lambda link: (link.target, link.source))


def symmetrize(forward: set[Link], backward: set[Link], method: Symmetrization) -> set[Link]:
    """Combine the alignments of both directions (Och and Ney 2003; Koehn et al. 2003, section 4.5).

    grow-diag starts with the intersection and adds neighbors of links that are in the union,
    repeatedly, if one of their tokens has no link. final then adds links of either direction if one
    of their tokens has none, final-and only if neither has one.
    """
    if method == "union":
        return forward | backward
    if method == "intersection":
        return forward & backward
    links = _grow_diagonally(forward & backward, forward | backward)
    if method == "grow-diag":
        return links
    sources, targets = {link.source for link in links}, {link.target for link in links}
    for link in [*sort_links(forward), *sort_links(backward)]:
        is_free = (link.source not in sources, link.target not in targets)
        if all(is_free) if method == "grow-diag-final-and" else any(is_free):
            links.add(link)
            sources.add(link.source)
            targets.add(link.target)
    return links


def _grow_diagonally(links: set[Link], union: set[Link]) -> set[Link]:
    sources, targets = {link.source for link in links}, {link.target for link in links}
    candidates, order, num_links = union - links, sort_links(union), -1
    while candidates and len(links) > num_links:  # until a pass over all, with new ones, adds none
        num_links = len(links)
        for link in order:
            if link not in links:
                continue
            for target_step, source_step in _NEIGHBORS:
                neighbor = Link(link.source + source_step, link.target + target_step)
                is_covered = neighbor.source in sources and neighbor.target in targets
                if neighbor in candidates and not is_covered:
                    links.add(neighbor)
                    candidates.discard(neighbor)
                    sources.add(neighbor.source)
                    targets.add(neighbor.target)
    return links
