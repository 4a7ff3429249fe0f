"""The gradient of hard attention (code, 20 minutes).

Position i is drawn with p = softmax(scores); the loss is (values[i] - target)^2. With few positions
every expectation is a sum, so no sampling is needed. Return the exact gradient of the expected loss
with respect to the scores, mean and total variance of REINFORCE with a baseline, and the mean of the
straight-through estimator. Which means are equal? Try a baseline of 0.
"""

import torch


def estimators(scores, values, target, baseline):
    p = scores.softmax(0)
    losses = (values - target) ** 2
    one_hot = torch.eye(len(p), dtype=p.dtype)
    jacobian = p.diag() - torch.outer(p, p)  # of softmax
    exact = jacobian @ losses  # blank
    samples, straight = [], []
    for i in range(len(p)):
        score = one_hot[i] - p  # blank
        samples.append((losses[i] - baseline) * score)  # blank
        straight.append(2 * (values[i] - target) * jacobian @ values)  # blank
    mean = p @ torch.stack(samples)
    variance = p @ ((torch.stack(samples) - mean) ** 2).sum(1)
    return exact, mean, variance, p @ torch.stack(straight)
