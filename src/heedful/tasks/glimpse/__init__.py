"""Classification of images by glimpses: recurrent models of visual attention.

Reading order: `task`, `data`, `evaluation`, `model` (REINFORCE) with `policies`, `draw_window` (a
differentiable model), `predictor`, `trajectories` (figures), `command` and `default_recipe`.
"""
