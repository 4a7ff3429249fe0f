"""Reading: the data of a run, in memory where it fits, else from files."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

from rich.console import Console

from heedful.corpora.kinds import Corpora
from heedful.corpora.making import (
    CUTTING,
    Part,
    cut_text,
    pair_corpora,
    say_vocabulary,
    text_corpora,
)
from heedful.corpora.tokens import (
    build_tokens,
    open_tokens,
    prepared_corpora,
    sources_of,
    weights_of,
)
from heedful.data.prepare import fingerprint, held_out_rows, tokenise_parts
from heedful.data.prepared import TokensConfig
from heedful.data.running import fingerprint_of, held_out_lines
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.text.config import TextPair
from heedful.training.progress import say

TOKENS = "tokens"
"""Where a run keeps the tokens of data that does not fit into memory."""
_TWO_FILES = "two files: --source FILE --target FILE"


def read_corpora(recipe: Recipe, run: Run, console: Console) -> Corpora:
    """Read the data of a recipe; a run that is only beginning learns its vocabulary from it."""
    data = recipe.data
    if data.train is None:
        files = "a file: --text FILE" if recipe.is_of_text else _TWO_FILES
        raise ConfigError(
            "data.train", "the recipe does not say what to learn from", f"give {files}"
        )
    say(console, f"reading {data.train.describe()}")
    if isinstance(data.train, TokensConfig):
        return prepared_corpora(recipe, run, open_tokens(recipe, data.train), console)
    folder = run.folder / TOKENS
    if not folder.exists():
        with console.status("reading the data"):
            parts = _read_at_most(recipe, data.in_memory)
        if parts is not None:
            return _in_memory(recipe, run, parts, console)
        kind = "lines" if recipe.is_of_text else "pairs"
        say(console, f"more than {data.in_memory} {kind}: their tokens are kept in {folder}")
    text = run.read_text(recipe) if run.exists else None
    prepared = build_tokens(recipe, folder, console, text=text)
    return prepared_corpora(recipe, run, prepared, console)


def _read_at_most(recipe: Recipe, most: int) -> list[list[Any]] | None:
    """Read the examples of each source; None if there are more than memory should hold."""
    parts = list[list[Any]]()
    for source in sources_of(recipe):
        left = most - sum(map(len, parts))
        parts.append(list(islice(source.stream(), left + 1)))
        if len(parts[-1]) > left:
            return None
    return parts


def _in_memory(recipe: Recipe, run: Run, parts: list[list[Any]], console: Console) -> Corpora:
    if recipe.data.dev is not None:
        held_out: list[Any] = recipe.data.dev.read()
    else:
        parts, held_out = _hold_out(recipe, parts)
    if not run.exists:
        with console.status("learning the vocabulary"):
            run.begin(recipe, recipe.text.train(*_sides(recipe, parts)))
    text = run.read_text(recipe)
    say_vocabulary(recipe, text, console)
    if recipe.is_of_text:
        row = cut_text("train", parts[0], text, console)
        return text_corpora(recipe, text, row, held_out, console, fingerprint=fingerprint_of(row))
    stores = _cut_parts(recipe, text, parts, console)
    return pair_corpora(recipe, text, stores, held_out, console)


def _hold_out(recipe: Recipe, parts: list[list[Any]]) -> tuple[list[list[Any]], list[Any]]:
    """Part examples into those to learn from, source by source, and a few to validate on."""
    assert recipe.data.train is not None
    count, at = sum(map(len, parts)), recipe.data.train.describe()
    rows = (
        set(held_out_lines(count, at=at))
        if recipe.is_of_text
        else set(held_out_rows(count, seed=recipe.training.seed, at=at))
    )
    learned, held_out, first = list[list[Any]](), list[Any](), 0
    for part in parts:
        numbered = list(enumerate(part, first))
        learned.append([example for row, example in numbered if row not in rows])
        held_out += [example for row, example in numbered if row in rows]
        first += len(part)
    return learned, held_out


def _sides(recipe: Recipe, parts: list[list[Any]]) -> tuple[list[str], list[str]]:
    """Give the texts that the tokenizers of source and target learn from."""
    learned = list(chain.from_iterable(parts))
    if recipe.is_of_text:
        return learned, []
    return [pair.source for pair in learned], [pair.target for pair in learned]


def _cut_parts(
    recipe: Recipe, text: TextPair, parts: list[list[Any]], console: Console
) -> list[Part]:
    with console.status(CUTTING):
        stores, report = tokenise_parts(parts, text, recipe.data.selection, at="data.train")
    for line in report.lines():
        say(console, f"train: {line}")
    weights = weights_of(recipe)
    return [Part(store, fingerprint(store), w) for store, w in zip(stores, weights, strict=True)]
