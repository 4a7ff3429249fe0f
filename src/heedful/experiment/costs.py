"""Costs: how many floating-point operations does it take to learn from one target token?"""

from __future__ import annotations

from functools import cache

import torch
from pydantic import TypeAdapter

from heedful.corpora import Corpora, PairCorpora
from heedful.evaluation.operations import operations_per_token
from heedful.recipes import Recipe
from heedful.tasks.config import ModelConfig

_MODELS: TypeAdapter[ModelConfig] = TypeAdapter(ModelConfig)


def operations_per_target(recipe: Recipe, corpora: Corpora) -> float:
    """Count for a text or a pair of the mean length of those held out."""
    batches = list(corpora.held_out())
    num_rows = sum(len(batch.targets) for batch in batches)
    num_tokens = sum(batch.num_tokens for batch in batches)
    lengths: tuple[int | None, int] = None, _mean(num_tokens, num_rows)
    if isinstance(corpora, PairCorpora):
        targets = sum(batch.num_targets for batch in batches)
        lengths = _mean(num_tokens - targets, num_rows), _mean(targets, num_rows)
    sizes = len(corpora.text.source), len(corpora.text.target)
    return _count(recipe.model.model_dump_json(), sizes, lengths)


def _mean(total: int, count: int) -> int:
    return max(1, round(total / count))


@cache
def _count(model: str, sizes: tuple[int, int], lengths: tuple[int | None, int]) -> float:
    source_size, target_size = sizes
    source, target = lengths
    with torch.device("meta"):
        config = _MODELS.validate_json(model)
        built = config.build(source_size=source_size, target_size=target_size)
    return operations_per_token(built, target_length=target, source_length=source).training
