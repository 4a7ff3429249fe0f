"""Text classification: one label for a text, and the attention weights of its tokens.

Reading order: `task`, `data`, `evaluation`, `model`, `predictor`, `command` and `default_recipe`.
"""
