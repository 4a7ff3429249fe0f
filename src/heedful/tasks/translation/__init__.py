"""Translation of source into target texts."""
