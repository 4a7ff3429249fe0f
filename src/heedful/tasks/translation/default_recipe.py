"""What is trained on pairs of texts by default.

- Device: `default`, LSTMs with attention, on a CPU; `default-gpu`, a Transformer, on a GPU.
- Data: n pairs have a vocabulary of 22 sqrt(n) subwords per language, but at least 3 per character.
- Time: 5 minutes, or n / 40,000 if that is more; the learning rate falls to zero at their end.

docs/lab/first-minutes.md describes how they were found.
"""

from math import sqrt
from typing import Any

import torch

from heedful.tasks.default_recipe import DefaultRecipe, training_minutes
from heedful.tokenization.subword import NUM_BYTES

PAIRS_PER_MINUTE = 40_000
VOCAB_FACTOR = 22  # times the square root of the number of pairs
PIECES_PER_CHARACTER = 3
MIN_VOCAB_SIZE, MAX_VOCAB_SIZE = 100, 32_000  # per language, besides bytes
_CHARACTER_PAIRS = 100_000  # whose characters are counted


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for these pairs, or for unknown ones, if `train` is None."""
    name = "default" if device.type == "cpu" else "default-gpu"
    if train is None:
        return DefaultRecipe(name)
    num_pairs, num_characters = _count(train)
    size = max(VOCAB_FACTOR * sqrt(num_pairs), PIECES_PER_CHARACTER * num_characters)
    size = NUM_BYTES + min(MAX_VOCAB_SIZE, max(MIN_VOCAB_SIZE, round(size, -2)))
    if name == "default":
        sizes = {f"tokenizers.{side}.vocab_size": size for side in ("source", "target")}
    else:
        sizes = {"tokenizers.tokenizer.vocab_size": 2 * size}  # of both languages
    minutes = training_minutes(num_pairs, PAIRS_PER_MINUTE)
    return DefaultRecipe(name, {**sizes, "training.max_minutes": minutes})


def _count(train: Any) -> tuple[int, int]:
    """Return the numbers of pairs and of different characters."""
    characters: set[str] = set()
    count = 0
    for count, pair in enumerate(train.stream(), start=1):
        if count <= _CHARACTER_PAIRS:
            characters.update(pair.source, pair.target)
    return count, len(characters)
