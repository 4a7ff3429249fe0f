"""Text classification: one label for a text, and the attention weights of its tokens.

Reading order: `task`, `model`, `predictor` and `command`.
"""
