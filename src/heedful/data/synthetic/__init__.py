"""Corpora that heedful generates itself: no files, no downloads.

Reading order: `corpus` (the interface, and toy corpora), `latin`; `images` (shapes and formulas)
with `icons`; `digits`; `series`.
"""

from heedful.data.synthetic.corpus import (
    ARITHMETIC_SPLITS,
    RESERVED_NUMBERS,
    ArgsortCorpus,
    ArithmeticCorpus,
    Corpus,
    DatesCorpus,
    SequenceCorpus,
)
from heedful.data.synthetic.latin.corpus import LatinCorpus
from heedful.errors import DataError, check_choice

__all__ = ["SYNTHETIC_CORPORA", "Corpus", "get_corpus"]

SYNTHETIC_CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        LatinCorpus(),
        ArithmeticCorpus(),
        ArithmeticCorpus(
            "arithmetic-gaps",
            "the same, but eight numbers are operands in the split `numbers` only",
            (*ARITHMETIC_SPLITS, "numbers"),
            RESERVED_NUMBERS,
        ),
        DatesCorpus(),
        SequenceCorpus("copy", "letters, and the same letters again", list),
        SequenceCorpus("reverse", "letters, and the same backwards", lambda letters: letters[::-1]),
        SequenceCorpus("sort", "letters, and the same in alphabetical order", sorted),
        ArgsortCorpus(),
    )
}


def get_corpus(name: str) -> Corpus:
    """Return a built-in corpus by its name."""
    check_choice(name, SYNTHETIC_CORPORA, "built-in corpus", location="corpus", error=DataError)
    return SYNTHETIC_CORPORA[name]
