"""Decoders: models that write a target, looking at what was read."""
