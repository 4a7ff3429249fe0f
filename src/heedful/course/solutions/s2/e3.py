"""Positions are rotations (paper and code, 12 minutes).

p(t) has the pairs (sin(w_i t), cos(w_i t)), w_i = 10000^(-2 i / size). Write the matrix R_k with
p(t + k) = R_k p(t) for every t. On paper: why does p(t) . p(s) depend on t - s alone?
"""

import torch


def frequencies(size):
    return [10000.0 ** -(2 * i / size) for i in range(size // 2)]


def encoding(t, size):
    """Return p(t)."""
    angles = torch.tensor([t * frequency for frequency in frequencies(size)], dtype=torch.float64)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten()  # blank


def block(angle):
    """Return the 2 x 2 block of a pair."""
    angle = torch.tensor(angle, dtype=torch.float64)
    cos, sin = angle.cos(), angle.sin()
    return torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)  # blank


def rotation(k, size):
    """Return R_k."""
    return torch.block_diag(*(block(k * frequency) for frequency in frequencies(size)))
