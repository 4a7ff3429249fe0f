"""Plotting: to be described."""
