"""Normalisation: what is changed in a text before it is cut into tokens.

By default nothing. Whatever is changed is a setting that is saved with the run, never a habit
of a tokenizer; and normalising twice changes no more than normalising once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from heedful.config import Choice


class Normalisation:
    """Steps that change a text, in order; without steps, the identity."""

    def __init__(self, steps: Iterable[Callable[[str], str]] = ()) -> None:
        self.steps = tuple(steps)

    def __call__(self, text: str) -> str:
        """Change a text."""
        for step in self.steps:
            text = step(text)
        return text


class NormalisationConfig(Choice):
    """What to change in a text before it is cut into tokens."""

    unicode: Literal["none", "nfc", "nfkc"] = "none"
    """Compose characters (nfc), or also replace look-alikes such as ligatures (nfkc)."""
    lowercase: bool = False
    """Make capitals small."""
    strip: bool = False
    """Remove white space, and with it a carriage return, from both ends."""

    def build(self) -> Normalisation:
        """Make the function that changes a text so."""
        # nfkc can uncover capitals and spaces (U+1D400, U+00A8), so it comes first.
        steps: list[Callable[[str], str]] = []
        if self.unicode != "none":
            form: Literal["NFC", "NFKC"] = "NFC" if self.unicode == "nfc" else "NFKC"
            steps.append(partial(unicodedata.normalize, form))
        if self.lowercase:
            steps.append(str.lower)
        if self.strip:
            steps.append(str.strip)
        return Normalisation(steps)
