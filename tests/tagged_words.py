"""A tiny tagging problem, and the recipe that learns it: names follow titles."""

import random
from pathlib import Path

NAMES = ["Anna", "Bruno", "Carla", "Dario"]
OTHERS = ["sees", "the", "old", "house", "and", "a", "cat"]

RECIPE = """
info: {{summary: names}}
tokenizers: {{type: separate, source: {{type: word-character}}, target: {{type: whitespace}}}}
model:
  type: sequence-tagger
  encoder: {encoder}
  characters: {characters}
  output_head: {head}
  scheme: {scheme}
  dropout: 0
training:
  max_steps: {steps}
  validate_every: {every}
  metric_for_best_model: {metric}
  batching: {{max_tokens: 1000}}
  optimizer: {{learning_rate: 1e-2}}
  lr_scheduler: {{type: linear, warmup_steps: 10}}
"""
RECURRENT = "{type: recurrent, cell: gru, embedding_size: 16, hidden_size: 16}"
TRANSFORMER = (
    "{type: transformer, hidden_size: 16, num_layers: 1, attention: {score: {type: scaled-dot}, "
    "multi_head: {num_heads: 2}}, feed_forward: [{intermediate_size: 16}]}"
)
CONVOLUTION = "{type: convolution, embedding_size: 8, num_filters: 8}"
LSTM = "{type: lstm, embedding_size: 8, hidden_size: 8}"


def tagged_sentences(count: int, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Return sentences in which a title begins a span of names."""
    chance = random.Random(seed)
    sentences = []
    for _ in range(count):
        sentence: list[tuple[str, str]] = []
        for _ in range(chance.randint(1, 3)):
            sentence += [(word, "O") for word in chance.choices(OTHERS, k=chance.randint(1, 3))]
            names = chance.choices(NAMES, k=chance.randint(0, 2))
            if names:
                sentence += [("Dr", "B-PER"), *((name, "I-PER") for name in names)]
        sentences.append(sentence)
    return sentences


def conll_text(sentences: list[list[tuple[str, str]]]) -> str:
    """Return the sentences in two columns."""
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in rows) for rows in sentences)


def write_tagging_recipe(
    folder: Path,
    *,
    steps: int = 60,
    every: int = 30,
    encoder: str = RECURRENT,
    characters: str = CONVOLUTION,
    head: str = "crf",
    scheme: str = "null",
    metric: str = "span-f1",
) -> tuple[Path, Path]:
    """Write tagged words and a recipe; return the paths of both."""
    folder.mkdir(parents=True, exist_ok=True)
    conll, recipe = folder / "train.conll", folder / "names.yaml"
    conll.write_text(conll_text(tagged_sentences(200)))
    settings = {"encoder": encoder, "characters": characters, "head": head, "scheme": scheme}
    recipe.write_text(RECIPE.format(steps=steps, every=every, metric=metric, **settings))
    return recipe, conll
