"""Longer than in training (experiment, a minute of machine time).

The task: name the token two places back. Models with four kinds of positions are trained on 12
tokens and tested on 24. Predict the ranking at positions 13 to 24, then fill in the blanks. Does the
sine encoding extrapolate?
"""

import math

import torch
from torch import nn

SIZE, WIDTH = 12, 48
KINDS = ("none", "learned", "sin", "alibi")


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.embedding, self.learned = nn.Embedding(SIZE, WIDTH), nn.Embedding(24, WIDTH)
        self.qk = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(2))
        self.value = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 96), nn.ReLU(), nn.Linear(96, WIDTH)) for _ in range(2)
        )
        self.out = nn.Linear(WIDTH, SIZE)

    def forward(self, tokens):
        T = tokens.size(1)
        x = self.embedding(tokens)
        t, s = torch.arange(T)[:, None], torch.arange(T)
        angles = t * 10000.0 ** -(torch.arange(0, WIDTH, 2) / WIDTH)
        if self.kind == "learned":
            x = x + self.learned.weight[:T]
        if self.kind == "sin":
            x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)  # blank
        bias = -(t - s).abs() if self.kind == "alibi" else 0 * (t - s)  # blank
        for qk, value, feed in zip(self.qk, self.value, self.feed, strict=True):
            q, k = qk(x).chunk(2, -1)
            scores = q @ k.mT / math.sqrt(WIDTH) + bias
            x = x + scores.masked_fill(s > t, -torch.inf).softmax(-1) @ value(x)
            x = x + feed(x)
        return self.out(x)


def sample(count, length):
    tokens = torch.randint(SIZE, (count, length))
    return tokens, torch.cat([tokens[:, :1], tokens[:, :1], tokens[:, :-2]], 1)


def accuracy(model, tokens, targets, positions):
    with torch.no_grad():
        right = model(tokens).argmax(-1) == targets
    return right[:, positions].float().mean().item()


def compare_positions(seed, steps=500):
    inside, beyond = {}, {}
    for kind in KINDS:
        torch.manual_seed(seed)
        model = Model(kind)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            tokens, targets = sample(64, 12)
            loss = nn.functional.cross_entropy(model(tokens)[:, 2:].mT, targets[:, 2:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        inside[kind] = accuracy(model, *sample(200, 12), slice(2, 12))
        beyond[kind] = accuracy(model, *sample(200, 24), slice(-11, None))  # blank
    return {"inside": inside, "beyond": beyond}
