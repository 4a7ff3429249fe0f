"""Making: corpora of tokens that are there, and what is said of them."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console

from heedful.corpora.kinds import MaskedTextCorpora, PairCorpora, TextCorpora
from heedful.data.mixing import Mixed
from heedful.data.prepare import tokenise
from heedful.data.records import Pair
from heedful.data.running import Row, Tokens, run_together
from heedful.data.store import Pairs
from heedful.recipes import Recipe
from heedful.tasks.masked_language_model import MaskedLanguageModelConfig
from heedful.text.config import TextPair
from heedful.text.vocabulary import UNK
from heedful.training.progress import say

CUTTING = "cutting texts into tokens"


class Part(NamedTuple):
    """The pairs of one source, in tokens."""

    pairs: Pairs
    fingerprint: str
    weight: float


def say_vocabulary(recipe: Recipe, text: TextPair, console: Console) -> None:
    """Say how many tokens there are."""
    both = f"{len(text.source)} source and {len(text.target)} target"
    say(console, f"vocabulary: {len(text.target) if recipe.is_of_text else both} tokens")


def pair_corpora(
    recipe: Recipe, text: TextPair, parts: list[Part], held_out: list[Pair], console: Console
) -> PairCorpora:
    """Put together what is learned from and what is validated on."""
    with console.status(CUTTING):
        dev, report = tokenise(held_out, text, recipe.data.selection, at="data.dev")
    for line in report.lines():
        say(console, f"dev: {line}")
    train, fingerprint, _ = parts[0]
    if len(parts) > 1 or parts[0].weight != 1:
        pairs, fingerprints, weights = zip(*parts, strict=True)
        train = Mixed(pairs, weights, seed=recipe.training.seed)
        fingerprint = train.fingerprint(fingerprints)
    return PairCorpora(recipe, text, train, dev, fingerprint=fingerprint, held_out_pairs=held_out)


def text_corpora(
    recipe: Recipe,
    text: TextPair,
    train: Row,
    held_out: list[str],
    console: Console,
    *,
    fingerprint: str,
) -> TextCorpora:
    """Put together what is learned from and what is validated on."""
    dev = cut_text("dev", held_out, text, console)
    is_masked = isinstance(recipe.model, MaskedLanguageModelConfig)
    kind = MaskedTextCorpora if is_masked else TextCorpora
    return kind(recipe, text, train, dev, fingerprint=fingerprint)


def cut_text(name: str, lines: list[str], text: TextPair, console: Console) -> Tokens:
    """Turn lines into one row of tokens, and say how much that is."""
    with console.status(CUTTING):
        row = run_together(lines, text.target)
    report_text(name, console, lines=len(lines), tokens=len(row), unknown=int((row == UNK).sum()))
    return row


def report_text(name: str, console: Console, *, lines: int, tokens: int, unknown: int) -> None:
    """Say how much running text there is; the token before the first line is not counted."""
    beside = f", {unknown} of them unknown" if unknown else ""
    say(console, f"{name}: {lines} lines, {tokens - 1} tokens{beside}")
