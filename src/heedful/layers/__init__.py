"""Layers: the parts that encoders and decoders are built from."""
