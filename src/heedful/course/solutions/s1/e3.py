"""A step of the decoder (code, 15 minutes).

SimpleRNN + attention, as on the slides: e_i = (W_h h_i) . (W_s s), softmax, context, and then
s' = tanh(A [x; s; c] + b). Shapes: x (B, X), s (B, D), H (B, S, D), W_h and W_s (A, D).
"""

import torch


def step(x, s, H, W_h, W_s, A, b):
    """Return the next state (B, D) and the weights (B, S)."""
    e = torch.einsum("bsa,ba->bs", H @ W_h.T, s @ W_s.T)  # blank
    a = e.softmax(-1)  # blank
    c = torch.sum(a[..., None] * H, 1)  # blank
    return torch.tanh(torch.cat([x, s, c], -1) @ A.T + b), a  # blank
