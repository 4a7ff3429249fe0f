"""A tiny classification problem, and the recipe that learns it: which of three words occurs?"""

import random
from pathlib import Path

LABELS = {"cat": "animal", "rose": "plant", "iron": "metal of old"}
FILLERS = ["the", "a", "one", "this", "that", "big", "old", "small", "near"]

RECIPE = """
info: {{summary: words}}
tokenizers: {{type: separate, source: {{type: word}}, target: {{type: label}}}}
model:
  type: text-classifier
  encoder: {{type: recurrent, embedding_size: 16, hidden_size: 16}}
  pooling: {pooling}
training:
  max_steps: {steps}
  validate_every: {every}
  metric_for_best_model: macro-f1
  batching: {{max_tokens: 256}}
  optimizer: {{learning_rate: 1e-2}}
  lr_scheduler: {{type: linear, warmup_steps: 10}}
"""


def labeled_lines(count: int, seed: int = 0) -> list[str]:
    """Return lines of a label, a tab and a text."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        word = chance.choice(list(LABELS))
        words = [word, *chance.choices(FILLERS, k=chance.randint(1, 6))]
        chance.shuffle(words)
        lines.append(f"{LABELS[word]}\t{' '.join(words)}")
    return lines


def write_labeled_recipe(
    folder: Path, *, steps: int = 100, every: int = 50, pooling: str = "attention"
) -> tuple[Path, Path]:
    """Write labeled texts and a recipe; return the paths of both."""
    folder.mkdir(parents=True, exist_ok=True)
    labeled, recipe = folder / "labeled.tsv", folder / "words.yaml"
    labeled.write_text("\n".join(labeled_lines(300)) + "\n")
    recipe.write_text(RECIPE.format(steps=steps, every=every, pooling=pooling))
    return recipe, labeled
