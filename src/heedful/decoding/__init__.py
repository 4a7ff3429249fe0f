"""Decoding: what is asked of a trained model, in words, and what is told of its answers."""
