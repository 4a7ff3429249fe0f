"""Demands: which batch of a corpus is the worst, and how large can it be at all?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from heedful.corpora import Corpora, PairCorpora, TextCorpora
from heedful.data.batching import epoch_batches, widths
from heedful.data.store import Pairs
from heedful.experiment.trials import Form, Vocabularies
from heedful.recipes import Recipe

_WINDOWS = 64  # windows of an epoch that are looked at for their forms
_ROWS_AT_ONCE = 1 << 20


def size_in(recipe: Recipe) -> int:
    """How large a batch a recipe asks for: tokens of pairs, or streams of text."""
    return recipe.data.streams.count if recipe.is_of_text else recipe.training.batching.max_tokens


class Demand(NamedTuple):
    """What is to be tried."""

    recipe: Recipe
    sizes: Vocabularies
    forms: list[Form]  # of which one is the worst
    most: int  # rows that the data has for one batch

    @classmethod
    def by(cls, recipe: Recipe, corpora: Corpora) -> Demand:
        """What a recipe demands of memory on this data."""
        sizes = Vocabularies(len(corpora.text.source), len(corpora.text.target))
        if isinstance(corpora, PairCorpora):
            most = min(len(corpora.train), recipe.training.batching.window)
            return cls(recipe, sizes, sorted(forms(corpora.train, recipe)), most)
        assert isinstance(corpora, TextCorpora)
        context = min(recipe.data.streams.context, len(corpora.train) - 1)
        return cls(recipe, sizes, [Form(0, context)], max(1, len(corpora.train) // context))

    def size(self, form: Form, rows: int) -> int:
        """A number of rows as the recipe says it."""
        return rows if self.recipe.is_of_text else rows * sum(form)

    @property
    def unit(self) -> str:
        """What that number counts."""
        return "streams" if self.recipe.is_of_text else "tokens"

    def rows(self, form: Form) -> int:
        """The rows that the recipe asks for."""
        size = size_in(self.recipe)
        return max(1, min(self.most, size if self.recipe.is_of_text else size // sum(form)))

    def worst(self, saved: Callable[[Form, int], float]) -> Form:
        """The form whose tokens each keep the most bytes; weights, kept once, do not count."""
        if len(self.forms) == 1:
            return self.forms[0]
        return max(self.forms, key=lambda form: (saved(form, 2) - saved(form, 1)) / sum(form))


def forms(store: Pairs, recipe: Recipe) -> set[Form]:
    """Find the widest form there can be, and those with most target and most source for their size.

    Which of them is the worst depends on the model: logits grow with the target alone, attention
    with the square of what is read.
    """
    batching, seed = recipe.training.batching, recipe.training.seed
    seen = set[Form]()
    for shape, window, _ in epoch_batches(store, batching, seed=seed, epoch=0):
        if window >= _WINDOWS:
            break
        if shape.num_tokens > batching.max_tokens / 2:  # others are rests, of which few come
            seen.add(Form(shape.source_width, shape.target_width))
    widest = _widest(store.in_epoch(0))
    seen.add(widest)
    return {
        widest,
        max(seen, key=lambda form: (form.target_width / form.source_width, sum(form))),
        max(seen, key=lambda form: (form.source_width / form.target_width, sum(form))),
    }


def _widest(store: Pairs) -> Form:
    longest = np.zeros(2, dtype=np.int64)
    for first in range(0, len(store), _ROWS_AT_ONCE):
        rows = np.arange(first, min(first + _ROWS_AT_ONCE, len(store)))
        longest = np.maximum(longest, [lengths.max() + 1 for lengths in store.lengths(rows)])
    return Form(*(int(widths(int(length))[-1]) for length in longest))
