"""Masked language modeling: to be described."""
