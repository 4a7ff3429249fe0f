"""Company: which models can be asked together with another?

Models of an ensemble read and write the same tokens, and so does a language model that has a say:
their vocabularies are equal, entry by entry. What is not is refused by its folder, and the first
difference named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heedful.decoding.config import DecodingConfig
from heedful.decoding.spelling import spell_each
from heedful.errors import ConfigError, RunError
from heedful.text.config import TextPair
from heedful.text.tokenizers import Tokenizer

_SAME_TEXT = "use runs that were trained with the same tokenizers"
_LANGUAGE_MODEL = "decoding.language_model.run"


def refuse_other_vocabularies(own: TextPair, other: TextPair, *, folder: Path | str) -> None:
    """Refuse a run that reads or writes other tokens."""
    sides = {"source": (own.source, other.source), "target": (own.target, other.target)}
    for side, (here, there) in sides.items():
        if found := _difference(here, there):
            raise RunError(str(folder), f"its {side} vocabulary is another: {found}", _SAME_TEXT)


def refuse_other_text(own: Tokenizer, other: Tokenizer, *, folder: Path | str) -> None:
    """Refuse a language model of other tokens than those that are written."""
    if found := _difference(own, other):
        raise ConfigError(
            _LANGUAGE_MODEL,
            f"the vocabulary of {folder} is not that of the target texts: {found}",
            "train it on target texts with their tokenizer",
        )


def refuse_company(settings: DecodingConfig, others: Sequence[Path | str], *, kind: str) -> None:
    """Refuse to put others beside a model of running text, which has no outputs to agree on."""
    if others:
        raise ConfigError(
            "others",
            f"a {kind} cannot be asked together with {others[0]}",
            "only models that translate make an ensemble: name the run alone",
        )
    if settings.language_model is not None:
        raise ConfigError(
            _LANGUAGE_MODEL, f"a {kind} is not fused with another", "leave language_model out"
        )


def refused_member(folder: Path | str, kind: str) -> RunError:
    """Say that a run cannot be part of an ensemble."""
    problem = f"this run is a {kind}, and only models that translate make an ensemble"
    return RunError(str(folder), problem, "leave it out")


def refused_language_model(folder: Path | str, kind: str) -> ConfigError:
    """Say that a run cannot be fused."""
    return ConfigError(
        _LANGUAGE_MODEL,
        f"the run {folder} is a {kind}: it does not say how texts go on by themselves",
        "name a run whose model is of `kind: language-model`",
    )


def _difference(own: Tokenizer, other: Tokenizer) -> str | None:
    if type(own) is not type(other):
        return f"tokens are cut by {type(own).__name__} here and by {type(other).__name__} there"
    here, there = spell_each(own), spell_each(other)
    for number, (one, two) in enumerate(zip(here, there, strict=False)):
        if one != two:
            return f"token {number} is {one!r} here and {two!r} there"
    if len(here) != len(there):
        return f"it has {len(there)} tokens, and not {len(here)}"
    return None
