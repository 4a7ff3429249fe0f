"""The recipe `default`, completed for the device, the data and the time that training may take.

- Device: `default`, LSTMs with attention, on a CPU; `default-gpu`, a Transformer, on a GPU.
- Data: n pairs have a vocabulary of 22 sqrt(n) subwords per language, but at least 3 per character.
- Time: 5 minutes, or n / 40,000 if that is more; the learning rate falls to zero at their end.

What the user sets wins. docs/training.md describes how they were found.
"""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import torch

from heedful.config import Override, to_overrides
from heedful.data.sharded_dataset import PreparedDataConfig, load_prepared_dataset
from heedful.recipes import Recipe, load_recipe
from heedful.tokenization.subword import NUM_BYTES
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig

DEFAULT_RECIPE = "default"
GPU_RECIPE = "default-gpu"
MIN_MINUTES, PAIRS_PER_MINUTE = 5, 40_000
VOCAB_FACTOR = 22  # times the square root of the number of pairs
PIECES_PER_CHARACTER = 3
MIN_VOCAB_SIZE, MAX_VOCAB_SIZE = 100, 32_000  # per language, besides bytes
_CHARACTER_PAIRS = 100_000  # whose characters are counted
_LIMITS = ("max_steps", "max_epochs", "max_minutes", "max_flops")


def complete_default(overrides: Sequence[Override], device: torch.device) -> Recipe:
    """Return `default` with these overrides, completed for the device and the data."""
    base = DEFAULT_RECIPE if device.type == "cpu" else GPU_RECIPE
    plain, draft = load_recipe(base), load_recipe(base, overrides)
    train = draft.data.train
    if draft.task is not plain.task or train is None or train.is_single_pass:
        return draft
    chosen: dict[str, Any] = {}
    if isinstance(train, PreparedDataConfig):
        folder = Path(train.path)
        if folder.is_dir():  # else it is reported where it is opened
            prepared = load_prepared_dataset(folder, verify=False)
            chosen["tokenizers"] = prepared.settings["tokenizers"]
    else:
        num_pairs, num_characters = _count(train)
        if draft.tokenizers == plain.tokenizers:
            chosen |= _vocab_sizes(draft, num_pairs, num_characters)
        chosen["training.max_minutes"] = max(MIN_MINUTES, round(num_pairs / PAIRS_PER_MINUTE))
    changed = {".".join(override.path) for override in overrides}
    if changed & {f"training.{limit}" for limit in _LIMITS}:
        chosen["training.max_minutes"] = None  # unless it is among them
    return load_recipe(base, [*to_overrides(chosen), *overrides])


def describe_default(recipe: Recipe) -> str:
    """Return a line about the choices, and how to change them."""
    is_recurrent = recipe.model.encoder.type == "recurrent"
    kind = "LSTMs for a CPU" if is_recurrent else "Transformer for a GPU"
    minutes = recipe.training.max_minutes
    duration = f", {minutes:g} minutes of training" if minutes else ""
    return f"default settings: {kind}{duration}; change them with --set, or choose a recipe"


def _count(train: Any) -> tuple[int, int]:
    """Return the numbers of pairs and of different characters."""
    characters: set[str] = set()
    count = 0
    for count, pair in enumerate(train.stream(), start=1):
        if count <= _CHARACTER_PAIRS:
            characters.update(pair.source, pair.target)
    return count, len(characters)


def _vocab_sizes(draft: Recipe, num_pairs: int, num_characters: int) -> dict[str, Any]:
    size = max(VOCAB_FACTOR * sqrt(num_pairs), PIECES_PER_CHARACTER * num_characters)
    size = NUM_BYTES + min(MAX_VOCAB_SIZE, max(MIN_VOCAB_SIZE, round(size, -2)))
    if isinstance(draft.tokenizers, SharedTokenizerConfig):
        return {"tokenizers.tokenizer.vocab_size": 2 * size}
    return {f"tokenizers.{side}.vocab_size": size for side in ("source", "target")}
