"""Masked language modeling: `task`, and `command`, which has only options."""
