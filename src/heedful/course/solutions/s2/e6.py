"""Two places at once (experiment, half a minute of machine time).

Eight vectors x_i in R^4, two of them marked A and B; the output is [x_A; x_B]. The keys see the marks
alone. On paper: why can one head explain at most half of the variance? Then fill in keys and heads.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, num_heads):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(num_heads, 8))
        self.keys, self.values = nn.Linear(2, 8), nn.Linear(4, 8 * num_heads)
        self.out = nn.Linear(8 * num_heads, 8)
        self.num_heads = num_heads

    def forward(self, marks, values):
        scores = self.keys(marks) @ self.queries.mT  # blank
        weights = scores.softmax(1)  # blank
        heads = self.values(values).unflatten(-1, (self.num_heads, 8))
        return self.out(torch.einsum("bsh,bshd->bhd", weights, heads).flatten(1))


def sample(count):
    values = torch.randn(count, 8, 4)
    order = torch.rand(count, 8).argsort(-1)
    marks = nn.functional.one_hot(order, 8)[..., :2].float()
    targets = [(marks[..., i : i + 1] * values).sum(1) for i in range(2)]
    return marks, values, torch.cat(targets, -1)


def fit(model, steps=600):
    """Return the share of the variance that a trained model explains."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        marks, values, targets = sample(128)
        loss = (model(marks, values) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    marks, values, targets = sample(2000)
    with torch.no_grad():
        return 1 - (model(marks, values) - targets).square().mean().item()


def explained(seed):
    torch.manual_seed(seed)
    return {"one": fit(Model(num_heads=1)), "two": fit(Model(num_heads=2))}
