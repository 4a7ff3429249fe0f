"""A tiny running text, and the recipes by which tests learn it."""

from pathlib import Path

LINES = ["abcd efgh", "efgh ijkl", "ijkl abcd"]

RECIPE = """
about: {{summary: letters that follow one another}}
data:
  train: {{kind: text, path: {folder}/text.txt}}
  streams: {{count: 4, context: 16}}
text: {{kind: shared, tokenizer: {{kind: {tokenizer}}}}}
model: {model}
training:
  max_steps: {steps}
  validate_every: {every}
  optimizer: {{learning_rate: 2e-2}}
  schedule: {{kind: linear, warmup_steps: 10}}
"""

MODELS = {
    "language-model": """
  kind: language-model
  embedding_size: 16
  dropout: 0.1
  reader: {kind: recurrent, hidden_size: 32}
""",
    "transformer": """
  kind: language-model
  embedding_size: 16
  positions: {kind: learned, max_positions: 16}
  tied: true
  reader:
    kind: transformer
    size: 16
    num_layers: 1
    attention: {score: {kind: scaled-dot}, heads: {num_heads: 2}}
    feedforwards: [{kind: plain, hidden_size: 32}]
""",
    "masked-language-model": """
  kind: masked-language-model
  encoder: {kind: recurrent, embedding_size: 16, hidden_size: 32, dropout: 0.1}
  tied: false
""",
}


def write_text_recipe(
    folder: Path,
    model: str = "language-model",
    *,
    tokenizer: str = "character",
    steps: int = 120,
    every: int = 60,
) -> Path:
    """Write a text and a recipe that learns it; give the recipe's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(LINES * 40) + "\n")
    recipe = folder / "text.yaml"
    recipe.write_text(
        RECIPE.format(
            folder=folder, model=MODELS[model], tokenizer=tokenizer, steps=steps, every=every
        )
    )
    return recipe
