"""Captioning: write a text for an image."""
