"""Captioning: write a text for an image.

Reading order: `task`, `data`, `evaluation`, `images` (requests), `predictor`, `caption` (results),
`command` and `default_recipe`. The model is `heedful.models.captioning`.
"""
