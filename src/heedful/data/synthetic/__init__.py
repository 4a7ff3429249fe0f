"""Synthetic: corpora that need no files and no downloads."""

from __future__ import annotations

from heedful.data.synthetic.corpus import Corpus
from heedful.data.synthetic.latin import LatinCorpus
from heedful.data.synthetic.toy_corpora import (
    ArithmeticCorpus,
    DatesCorpus,
    SequenceCorpus,
    copy_letters,
    reverse_letters,
)
from heedful.errors import DataError, choices_hint, did_you_mean

__all__ = ["SYNTHETIC_CORPORA", "Corpus", "get_corpus"]

SYNTHETIC_CORPORA: dict[str, Corpus] = {
    "latin": LatinCorpus(),
    "arithmetic": ArithmeticCorpus(),
    "dates": DatesCorpus(),
    "copy": SequenceCorpus("copy", "letters, and the same letters again", transform=copy_letters),
    "reverse": SequenceCorpus(
        "reverse", "letters, and the same backwards", transform=reverse_letters
    ),
    "sort": SequenceCorpus(
        "sort", "letters, and the same in the alphabet's order", transform=sorted
    ),
}


def get_corpus(name: str) -> Corpus:
    """Find a built-in corpus by its name."""
    if name not in SYNTHETIC_CORPORA:
        problem = f"no built-in corpus is called {name!r}{did_you_mean(name, SYNTHETIC_CORPORA)}"
        raise DataError("corpus", problem, choices_hint(SYNTHETIC_CORPORA))
    return SYNTHETIC_CORPORA[name]
