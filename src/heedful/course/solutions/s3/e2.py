"""Vanishing gradients (code, 10 minutes).

h' = tanh(W h). Return the spectral norm of dh_n / dh_0, and that of dc / dh_0, where the context c is
the mean of h_0 to h_n: attention with equal weights. How does each fall with n if |W| < 1?
"""

import torch


def norms(W, h0, n):
    h = h0
    jacobian = torch.eye(len(W), dtype=W.dtype)
    jacobians = [jacobian]
    for _ in range(n):
        h = torch.tanh(W @ h)
        jacobian = (1 - h**2)[:, None] * W @ jacobian  # blank
        jacobians.append(jacobian)
    context = sum(jacobians) / len(jacobians)  # blank
    return torch.linalg.matrix_norm(jacobian, 2), torch.linalg.matrix_norm(context, 2)
