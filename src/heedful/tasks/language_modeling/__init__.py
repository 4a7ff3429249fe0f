"""Language modeling: models that continue a text.

Reading order: `task`, `generator` and `command`. The model is `heedful.models.language_model`.
"""
