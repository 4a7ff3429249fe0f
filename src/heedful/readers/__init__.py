"""Readers: stacks that read from left to right."""
