"""Language modeling: models that continue a text."""
