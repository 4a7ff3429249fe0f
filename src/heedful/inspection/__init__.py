"""Figures of attention weights and of training runs; figures need no torch.

Reading order: `attention_map` (data, SVG, HTML) with `mechanism_overlays` and `attention_lines`;
`attention_trace` and `attention_layers` (weights inside a model); `explanation` (top tokens and
checks); images: `image_attention`; `terminal_figures` (both); `figures` draws either. A run:
`run_report` and `training_curves`.
"""
