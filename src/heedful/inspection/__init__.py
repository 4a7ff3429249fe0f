"""Figures of attention weights and of training runs; figures need no torch.

Reading order: `attention_map` (data, SVG, HTML) with `attention_lines`; `attention_trace` and
`attention_layers` (weights inside a model); images: `image_attention` and `contact_sheet`;
`terminal_figures` (both); `figures` draws either. A run:
`run_report`, `run_samples` and `training_curves`.
"""
