"""Sequence labeling: a tag for each word, such as its part of speech or its part of a name.

Reading order: `task`, `model`, `predictor` and `command`.
"""
