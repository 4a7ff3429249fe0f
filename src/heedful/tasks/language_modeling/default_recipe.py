"""What is trained on running text by default.

- Device: `default-language-model`, an LSTM, on a CPU; `gpt-small`, a Transformer, on a GPU.
- Data: on a CPU, n characters have a vocabulary of 2 sqrt(n) subwords, but at least 3 per different
  character; on a GPU, characters are tokens.
- Time: 5 minutes, or n / 2,000,000 if that is more.
"""

from math import sqrt
from typing import Any

import torch

from heedful.tasks.default_recipe import DefaultRecipe, training_minutes, until_time_is_over
from heedful.tokenization.subword import NUM_BYTES

CHARACTERS_PER_MINUTE = 2_000_000
VOCAB_FACTOR = 2  # times the square root of the number of characters
PIECES_PER_CHARACTER = 3
MIN_VOCAB_SIZE, MAX_VOCAB_SIZE = 100, 16_000  # besides bytes
_MAX_MEASURED = 10_000_000  # characters among which different ones are counted


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for this text, or for an unknown one, if `train` is None."""
    is_cpu = device.type == "cpu"
    name = "default-language-model" if is_cpu else "gpt-small"
    settings: dict[str, Any] = {} if is_cpu else until_time_is_over()
    if train is not None:
        count, num_different = _count(train)
        settings["training.max_minutes"] = training_minutes(count, CHARACTERS_PER_MINUTE)
        if is_cpu:
            size = max(VOCAB_FACTOR * sqrt(count), PIECES_PER_CHARACTER * num_different)
            size = NUM_BYTES + min(MAX_VOCAB_SIZE, max(MIN_VOCAB_SIZE, round(size, -2)))
            settings["tokenizers.tokenizer.vocab_size"] = size
    return DefaultRecipe(name, settings)


def _count(train: Any) -> tuple[int, int]:
    """Return the numbers of characters and of different ones."""
    count = 0
    characters: set[str] = set()
    for line in train.stream():
        count += len(line) + 1
        if count <= _MAX_MEASURED:
            characters.update(line)
    return count, len(characters)
