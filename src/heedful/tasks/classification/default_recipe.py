"""What is trained on labeled texts by default.

- Device: `default-classifier` on a CPU, the larger `bilstm-classifier` on a GPU.
- Data: if words have more than 15 characters on average, there are no spaces between them, and
  characters are the tokens; else words are.
- Time: 5 minutes, or n / 20,000 for n texts if that is more.
"""

from typing import Any

import torch

from heedful.tasks.default_recipe import DefaultRecipe, training_minutes, until_time_is_over

TEXTS_PER_MINUTE = 20_000
MAX_WORD_LENGTH = 15  # characters per word, on average


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for these texts, or for unknown ones, if `train` is None."""
    is_cpu = device.type == "cpu"
    name = "default-classifier" if is_cpu else "bilstm-classifier"
    settings: dict[str, Any] = {} if is_cpu else until_time_is_over()
    if train is not None:
        num_texts = num_words = num_characters = 0
        for text, _ in train.stream():
            num_texts += 1
            num_words += len(text.split())
            num_characters += len(text)
        settings["training.max_minutes"] = training_minutes(num_texts, TEXTS_PER_MINUTE)
        if num_characters > MAX_WORD_LENGTH * num_words:
            settings["tokenizers.source"] = {"type": "character"}
    return DefaultRecipe(name, settings)
