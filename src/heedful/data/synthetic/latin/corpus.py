"""The Latin corpus: sentences with free word order, and names never seen in training.

The English of a sentence decides its split, so all word orders of a sentence fall into one. A
sentence with a reserved name is in the split `names`, and in no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from heedful.data.records import Pair
from heedful.data.synthetic.corpus import Corpus, split_of
from heedful.data.synthetic.latin.names import RESERVED

NAMES = "names"
RESERVED_NAMES = tuple(row.split()[0] for row in RESERVED.strip().splitlines())
_RESERVED_NAME = re.compile(rf"\b({'|'.join(RESERVED_NAMES)})\b")


class LatinCorpus(Corpus):
    """Latin sentences and their English."""

    name = "latin"
    description = "Latin sentences with free word order, and their English"
    splits = ("train", "dev", "test", NAMES)

    def draw(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw sentences, with reserved names for the split of that name only."""
        # Imported at first use: the grammar is large, and other corpora do not need it.
        from heedful.data.synthetic.latin.drawing import Speaker
        from heedful.data.synthetic.latin.lexicon import lexicon

        speaker = Speaker(lexicon(reserved_names=split == NAMES), random)
        while True:
            yield speaker.speak()

    def belongs(self, pair: Pair, split: str) -> bool:
        """Say whether a sentence is of the split, by its English."""
        if split == NAMES:
            return _RESERVED_NAME.search(pair.target) is not None
        return split_of(pair.target) == split
