"""Translation: to be described."""
