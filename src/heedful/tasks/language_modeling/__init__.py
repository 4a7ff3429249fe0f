"""Language modeling: to be described."""
