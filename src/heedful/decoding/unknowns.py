"""Unknown words: what can be said in their place?

Where a model says that there is a word it does not know, the source word it looked at most is
looked up in a dictionary, and copied if it is not there (Luong et al. 2015b, section 3.3, who call
it PosUnk; places are told here by attention, as in Jean et al. 2015). Where it looked nowhere, the
unknown word stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from heedful.data.lines import read_lines
from heedful.decoding.spelling import owners
from heedful.decoding.translation import NO_WORD
from heedful.errors import ConfigError, DataError
from heedful.text.tokenizers import Tokenizer, WordTokenizer
from heedful.text.vocabulary import SPECIAL_NAMES, UNK
from heedful.text.words import split_words

_TWO = 2
Dictionary = Mapping[str, str]
NO_DICTIONARY: Dictionary = MappingProxyType({})


def read_dictionary(path: Path) -> Dictionary:
    """Read two words a line, parted by white space: of the source, and of the target."""
    found: dict[str, str] = {}
    first: dict[str, int] = {}
    for number, line in enumerate(read_lines(str(path)), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != _TWO:
            raise DataError(
                f"{path}:{number}",
                f"two words are wanted, found {len(words)}",
                "write a word of the source, a tab or a space, and a word of the target",
            )
        source, target = words
        if found.setdefault(source, target) != target:
            raise DataError(
                f"{path}:{number}",
                f"{source!r} becomes {target!r} here, and {found[source]!r} in line "
                f"{first[source]}",
                "leave one of the lines out",
            )
        first.setdefault(source, number)
    return found


def refuse_without_words(tokenizer: Tokenizer) -> None:
    """Refuse to replace unknown words where there are none."""
    if not isinstance(tokenizer, WordTokenizer):
        raise ConfigError(
            "decoding.unknowns",
            "no word of an output can be unknown: its tokens are parts of words",
            "set unknowns to keep; only a target text of `kind: word` has unknown words",
        )


def replace_unknowns(
    spelled: Sequence[str],
    ids: Sequence[int],
    weights: NDArray[np.float32],
    *,
    source: Sequence[str],
    dictionary: Dictionary,
) -> list[str]:
    """Spell an output anew; `source` is how the source is spelled, its end not counted."""
    words = split_words("".join(source))  # the first follows a space that is not in the text
    owner = owners(source, [words[0][1:], *words[1:]] if words else [])
    told = list(spelled)
    for place in (place for place, token in enumerate(ids) if token == UNK):
        looked = weights[place, : len(source)]
        word = owner[int(looked.argmax())] if looked.any() else NO_WORD
        if word != NO_WORD:
            said, lead = words[word].strip(), told[place].removesuffix(SPECIAL_NAMES[UNK])
            told[place] = lead + dictionary.get(said, said)
    return told
