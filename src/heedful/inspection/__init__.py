"""Figures of attention weights and of training runs.

`attention_map` draws SVG and HTML, `terminal` draws in characters, `attention_trace` records the
weights inside a model, `run_report` draws the page of a run. Figures need no torch.
"""
