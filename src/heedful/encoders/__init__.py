"""Encoders: models that read a source."""
