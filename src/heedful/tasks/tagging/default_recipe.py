"""What is trained on tagged sentences by default.

- Device: `default-tagger` on a CPU, the larger `bilstm-tagger` on a GPU.
- Data: where all tags are O or those of spans (B-X, I-X ...), the output is a CRF, and the best
  model is chosen by the F1 of spans.
- Time: 5 minutes, or n / 100,000 for n words if that is more.
"""

from typing import Any

import torch

from heedful.evaluation.annotation_metrics import are_span_tags
from heedful.tasks.default_recipe import DefaultRecipe, training_minutes, until_time_is_over

WORDS_PER_MINUTE = 100_000


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for these sentences, or for unknown ones, if `train` is None."""
    is_cpu = device.type == "cpu"
    name = "default-tagger" if is_cpu else "bilstm-tagger"
    settings: dict[str, Any] = {} if is_cpu else until_time_is_over()
    if train is not None:
        num_words = 0
        tags: set[str] = set()
        for _, line in train.stream():
            words = line.split()
            num_words += len(words)
            tags.update(words)
        settings["training.max_minutes"] = training_minutes(num_words, WORDS_PER_MINUTE)
        if are_span_tags(tags):
            settings["model.output_head"] = {"type": "crf"}
            settings["training.metric_for_best_model"] = "span-f1"
    return DefaultRecipe(name, settings)
