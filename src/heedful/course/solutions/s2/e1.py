"""Why divide by sqrt(d)? (paper and code, 12 minutes)

q and k have independent entries of variance 1. On paper: what is Var(q . k)? Then measure the
standard deviation of the scores, the largest of 10 weights and the mean of the derivative a (1 - a).
Shapes: q (N, d), k (N, 10, d).
"""

import torch


def stats(q, k, scaled):
    """Return three numbers."""
    d = q.size(-1)
    scores = torch.einsum("nd,nkd->nk", q, k)  # blank
    scores = scores / d**0.5 if scaled else scores  # blank
    a = scores.softmax(-1)
    gradient = a * (1 - a)  # blank
    return scores.std(), a.amax(-1).mean(), gradient.mean()
