"""Concat is additive (paper and code, 10 minutes).

v . tanh(W [h; s]) equals v . tanh(W_h h + W_s s). Which parts of W are W_h and W_s? Then think: why
is the second form cheaper when there are many decoder steps?
"""


def split(W, size_h):
    """Return W_h and W_s; h has `size_h` numbers, s the others."""
    return W[:, :size_h], W[:, size_h:]  # blank


def additive(h, s, W_h, W_s, v):
    """Return the score."""
    return v @ (W_h @ h + W_s @ s).tanh()  # blank
