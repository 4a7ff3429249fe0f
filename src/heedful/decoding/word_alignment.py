"""Word alignments of outputs, read off attention weights.

Invariants: no link points to EOS; argmax links a token to at most one source token; links are
sorted by target, then by source.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.aligners.links import Link, sort_links, symmetrize
from heedful.decoding.translation import Translation
from heedful.errors import check, did_you_mean
from heedful.inspection.attention_layers import NO_WORD_ID

Weights = NDArray[np.floating[Any]]
"""Attention weights (tokens, source tokens); the last source token is EOS."""

Aligner = Callable[[Weights], set[Link]]
"""A function that turns weights into links, without those to EOS."""


def argmax_links(weights: Weights) -> set[Link]:
    """Link each token to its largest weight, unless that is EOS."""
    eos = weights.shape[1] - 1
    return {link for link in _largest_weights(weights) if link.source != eos}


def threshold_links(weights: Weights, threshold: float) -> set[Link]:
    """Link wherever the weight reaches the threshold."""
    indices = np.argwhere(weights[:, :-1] >= threshold).tolist()
    return {Link(source, target) for target, source in indices}


def symmetrized_links(weights: Weights) -> set[Link]:
    """Return argmax over rows and over columns, symmetrized by grow-diag-final-and."""
    by_columns = {Link(*link[::-1]) for link in _largest_weights(weights[:, :-1].T)}
    return symmetrize(argmax_links(weights), by_columns, "grow-diag-final-and")


def _largest_weights(weights: Weights) -> set[Link]:
    """Link each row with any weight to its largest, the first of equal ones."""
    if not weights.size:
        return set()
    best = weights.argmax(axis=1)
    return {Link(int(best[row]), row) for row in np.flatnonzero(weights.any(axis=1)).tolist()}


_NAMED_ALIGNERS: Mapping[str, Aligner] = {"argmax": argmax_links, "symmetrized": symmetrized_links}


def get_aligner(name: str, *, location: str) -> Aligner:
    """Return the aligner called argmax, symmetrized, or threshold=0.2."""
    if name in _NAMED_ALIGNERS:
        return _NAMED_ALIGNERS[name]
    method, _, value = name.partition("=")
    suggestion = did_you_mean(method, [*_NAMED_ALIGNERS, "threshold"])
    message = f"unknown alignment method {method!r}{suggestion}"
    hint = "choose from: argmax, symmetrized, threshold=0.2 (or another weight)"
    check(method == "threshold", location, message, hint)
    try:
        threshold = float(value)
    except ValueError:
        threshold = 0.0
    message = f"the threshold must be above 0 and at most 1, but is {value!r}"
    check(0 < threshold <= 1, location, message, "write threshold=0.2, for example")
    return partial(threshold_links, threshold=threshold)


def extract_links(weights: Weights, aligner: Aligner) -> list[Link]:
    """Return the links between tokens, sorted."""
    return sort_links(aligner(weights))


def to_word_links(
    links: Iterable[Link], source_word_ids: Sequence[int], word_ids: Sequence[int]
) -> list[Link]:
    """Map links between tokens to links between words; tokens without a word have none."""
    word_links = {Link(source_word_ids[source], word_ids[target]) for source, target in links}
    return sort_links(link for link in word_links if NO_WORD_ID not in link)


def word_alignment(translation: Translation, aligner: Aligner) -> list[Link]:
    """Return the links between whitespace-separated words of a translation and its source."""
    links = extract_links(translation.weights, aligner)
    return to_word_links(links, translation.source_word_ids, translation.word_ids)
