"""A tiny text and recipes of language models for it."""

from pathlib import Path

LINES = ["abcd efgh", "efgh ijkl", "ijkl abcd"]

RECIPE = """
info: {{summary: consecutive letters}}
data:
  train: {{type: text, path: {folder}/text.txt}}
  lm_batching: {{batch_size: 4, context_length: 16}}
tokenizers: {{type: shared, tokenizer: {{type: {tokenizer}}}}}
model: {model}
training:
  max_steps: {steps}
  validate_every: {every}
  optimizer: {{learning_rate: 2e-2}}
  lr_scheduler: {{type: linear, warmup_steps: 10}}
"""

MODELS = {
    "language-model": """
  type: language-model
  embedding_size: 16
  dropout: 0.1
  backbone: {type: recurrent, hidden_size: 32}
""",
    "transformer": """
  type: language-model
  embedding_size: 16
  positional_encoding: {type: learned, max_positions: 16}
  tie_embeddings: true
  backbone:
    type: transformer
    hidden_size: 16
    num_layers: 1
    attention: {score: {type: scaled-dot}, multi_head: {num_heads: 2}}
    feed_forward: [{type: plain, intermediate_size: 32}]
""",
    "masked-language-model": """
  type: masked-language-model
  encoder: {type: recurrent, embedding_size: 16, hidden_size: 32, dropout: 0.1}
  tie_embeddings: false
""",
    "next-sentence": """
  type: masked-language-model
  next_sentence_prediction: true
  encoder:
    type: transformer
    hidden_size: 16
    num_layers: 1
    num_segments: 2
    attention: {score: {type: scaled-dot}, multi_head: {num_heads: 2}}
    feed_forward: [{type: plain, intermediate_size: 32}]
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
    """Write a text and a recipe that trains on it; return the path of the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(LINES * 40) + "\n")
    recipe = folder / "text.yaml"
    recipe.write_text(
        RECIPE.format(
            folder=folder, model=MODELS[model], tokenizer=tokenizer, steps=steps, every=every
        )
    )
    return recipe
