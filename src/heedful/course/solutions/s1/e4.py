"""The self-attentive cell, twice (code, 20 minutes).

The slide: h_t = tanh(A [x_t; c_{t-1}] + b), scores h_i . c_{t-1}, and c_t sums h_1 to h_t; c_1 = h_1.
The paper: scores v . tanh(W_x x_t + W_c c_{t-1} + W_h h_i), c_t sums h_1 to h_{t-1} (c_1 = 0), then
h_t = tanh(A [x_t; c_t] + b). Return all contexts c_1 to c_T.
"""

import torch


def attend(history, query):
    """Return the context of a query by dot products."""
    states = torch.stack(history)
    return (states @ query).softmax(0) @ states


def slide(xs, A, b):
    history, contexts = [], []
    c = torch.zeros_like(b)
    for x in xs:
        h = torch.tanh(A @ torch.cat([x, c]) + b)  # blank
        history.append(h)  # slide
        c = attend(history, c)  # blank
        contexts.append(c)
    return torch.stack(contexts)


def paper(xs, A, b, v, W_x, W_c, W_h):
    history, contexts = [], []
    c = torch.zeros_like(b)
    for x in xs:
        if history:
            scores = [v @ torch.tanh(W_x @ x + W_c @ c + W_h @ old) for old in history]  # blank
            c = torch.stack(scores).softmax(0) @ torch.stack(history)  # blank
        h = torch.tanh(A @ torch.cat([x, c]) + b)  # paper
        history.append(h)
        contexts.append(c)
    return torch.stack(contexts)
