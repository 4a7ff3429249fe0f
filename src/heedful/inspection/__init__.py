"""Figures of attention weights and of training runs.

`attention_map` draws SVG, HTML and characters, `caption_attention` the same on pictures, `figures`
either; `attention_trace` records the weights inside a model, `run_report` draws the page of a run.
Figures need no torch.
"""
