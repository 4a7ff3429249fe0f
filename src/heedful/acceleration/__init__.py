"""Faster equivalents of plain code: kernels of ops, and replacements of modules for inference.

Nothing below this package mentions it; deleting it costs time and memory, never results. Invariant:
a kernel or a replacement matches the plain code up to rounding.
"""
