"""Benchmarks: what is measured, and printed by `make bench`."""
