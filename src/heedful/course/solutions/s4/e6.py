"""The same output, other attention (code, 15 minutes).

Given values V (S, D) and weights a (S), find weights b that differ from a and have the same context.
Idea: a direction with direction @ V = 0 and sum 0 lies in the null space of [V^T; 1]. Walk along it
until a weight is 0. For which S and D is it impossible? What does it say about explanations?
"""

import torch


def walk(a, direction):
    """Return the longest step for which a + step * direction has no negative weight."""
    shrinking = direction < -1e-12
    return (a[shrinking] / -direction[shrinking]).min()  # blank


def other_weights(V, a):
    rows = torch.cat([V.T, torch.ones(1, len(a), dtype=V.dtype)])
    null = torch.linalg.svd(rows)[2][len(rows) :]  # blank
    generator = torch.Generator().manual_seed(0)
    best = (0.0, a, null[0], torch.tensor(0.0))
    for _ in range(200):
        direction = torch.randn(len(null), generator=generator, dtype=V.dtype) @ null
        step = walk(a, direction)
        b = (a + step * direction).clamp(min=0)  # rounding alone
        best = max(best, ((a - b).abs().sum().item(), b, direction, step), key=lambda one: one[0])
    _, b, direction, step = best
    return b  # done
