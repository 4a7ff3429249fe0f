"""Benchmarks: what is measured, and printed by `factory bench`."""
