"""Figures of attention weights and of training runs; figures need no torch.

Reading order: `attention_map` (data, SVG, HTML) with `mechanism_overlays` and `attention_lines`;
`attention_trace`, `attention_layers` and `attention_selection` (weights inside a model) and
`large_maps` (too many of them); `explanation` (top tokens and checks) with `expert_routing`;
images: `image_attention`; `terminal_figures` (both); `figures` draws either. A run: `run_report`
and `training_curves`. A model: `architecture` and `architecture_drawing`.
"""
