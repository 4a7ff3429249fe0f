"""Language modeling: models that continue a text.

Reading order: `task`, `evaluation`, `generator`, `command` and `default_recipe`. The model is
`heedful.models.language_model`.
"""
