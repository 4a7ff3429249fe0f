"""Fused forms of recurrences, and the rule that chooses them."""
