"""Captioning: write a text for an image.

Reading order: `task`, `images` (requests), `predictor` (with its results) and `command`. The model
is `heedful.models.captioning`.
"""
