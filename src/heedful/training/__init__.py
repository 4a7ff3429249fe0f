"""Training: how a model learns."""
