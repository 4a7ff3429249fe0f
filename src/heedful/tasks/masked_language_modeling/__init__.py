"""Masked language modeling: models that fill masks."""
