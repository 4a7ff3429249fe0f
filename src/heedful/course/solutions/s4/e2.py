"""Two orders (code, 15 minutes).

Bahdanau: attend with s, then s' = tanh(C [y; s; c]). Luong: s' = tanh(A [y; s]), then attend with s'.
The score is s W h_i. Return the new state and the weights. On which inputs does each row of weights
depend?
"""

import torch


def attend(s, H, W):
    """Return context and weights."""
    a = (H @ W.T @ s).softmax(0)  # blank
    return a @ H, a


def bahdanau_step(y, s, H, W, C):
    c, a = attend(s, H, W)  # before
    return torch.tanh(C @ torch.cat([y, s, c])), a  # blank


def luong_step(y, s, H, W, A):
    s_new = torch.tanh(A @ torch.cat([y, s]))  # blank
    c, a = attend(s_new, H, W)  # blank
    return s_new, a
