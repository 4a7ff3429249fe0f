"""Synthetic: corpora that need no files and no downloads."""

from __future__ import annotations

from heedful.data.synthetic.arithmetic import ArithmeticCorpus
from heedful.data.synthetic.corpus import Corpus
from heedful.data.synthetic.dates import DatesCorpus
from heedful.data.synthetic.latin import LatinCorpus
from heedful.data.synthetic.sequences import SequenceCorpus, backwards, copied
from heedful.errors import DataError, choose_from, did_you_mean

__all__ = ["CORPORA", "Corpus", "corpus"]

CORPORA: dict[str, Corpus] = {
    "latin": LatinCorpus(),
    "arithmetic": ArithmeticCorpus(),
    "dates": DatesCorpus(),
    "copy": SequenceCorpus("copy", "letters, and the same letters again", rearrange=copied),
    "reverse": SequenceCorpus("reverse", "letters, and the same backwards", rearrange=backwards),
    "sort": SequenceCorpus(
        "sort", "letters, and the same in the alphabet's order", rearrange=sorted
    ),
}


def corpus(name: str) -> Corpus:
    """Find a built-in corpus by its name."""
    if name not in CORPORA:
        problem = f"no built-in corpus is called {name!r}{did_you_mean(name, CORPORA)}"
        raise DataError("corpus", problem, choose_from(CORPORA))
    return CORPORA[name]
