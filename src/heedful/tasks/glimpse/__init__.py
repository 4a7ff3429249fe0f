"""Classification of images by glimpses: recurrent models of visual attention.

Reading order: `task`, `model` (REINFORCE) with `policies`, `draw_window` (a differentiable model),
`predictor`, `trajectories` (figures) and `command`.
"""
