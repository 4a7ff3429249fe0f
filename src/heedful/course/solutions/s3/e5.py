"""An RNN learns the forward algorithm (experiment, half a minute of machine time).

A hidden chain of two states, a fair and a loaded die. A GRU predicts the *states* from the rolls,
once from left to right, once in both directions. Compare its predictions with the filtered and the
smoothed posterior by their KL divergence. Which belongs to which? Do not score against the states:
accuracy says little about distributions.
"""

import torch
from torch import nn

T = 24
MOVE = torch.tensor([[0.9, 0.1], [0.15, 0.85]])
ROLL = torch.tensor([[1 / 6] * 6, [0.05] * 5 + [0.75]])
START = torch.tensor([0.6, 0.4])


def sample(count):
    states = [torch.multinomial(START, count, replacement=True)]
    for _ in range(T - 1):
        states.append(torch.multinomial(MOVE[states[-1]], 1)[:, 0])
    states = torch.stack(states, 1)
    return states, torch.multinomial(ROLL[states].flatten(0, 1), 1).view(count, T)


def exact(rolls):
    """Return filtered and smoothed posteriors (B, T, 2)."""
    seen = ROLL.T[rolls]
    alphas, betas = [], [torch.ones(len(rolls), 2)]
    alpha = START * seen[:, 0]
    for t in range(T):
        if t:
            alpha = alpha @ MOVE * seen[:, t]  # blank
        alpha = alpha / alpha.sum(-1, keepdim=True)
        alphas.append(alpha)
    for t in range(T - 1, 0, -1):
        beta = (betas[0] * seen[:, t]) @ MOVE.T
        betas.insert(0, beta / beta.sum(-1, keepdim=True))
    alpha, beta = torch.stack(alphas, 1), torch.stack(betas, 1)
    smoothed = alpha * beta  # blank
    return alpha, smoothed / smoothed.sum(-1, keepdim=True)


class Reader(nn.Module):
    def __init__(self, bidirectional):
        super().__init__()
        self.rnn = nn.GRU(6, 32, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(64 if bidirectional else 32, 2)

    def forward(self, rolls):
        return self.out(self.rnn(nn.functional.one_hot(rolls, 6).float())[0]).log_softmax(-1)


def divergences(reader, steps=300):
    optimizer = torch.optim.Adam(reader.parameters(), lr=5e-3)
    for step in range(steps):
        if step == steps * 2 // 3:
            optimizer.param_groups[0]["lr"] = 1e-3
        states, rolls = sample(128)
        loss = nn.functional.nll_loss(reader(rolls).flatten(0, 1), states.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rolls = sample(1000)[1]
    with torch.no_grad():
        predicted = reader(rolls)
    kls = [(p * (p.log() - predicted)).sum(-1).mean().item() for p in exact(rolls)]
    return dict(zip(("filtered", "smoothed"), kls, strict=True))


def posteriors(seed):
    torch.manual_seed(seed)
    return {
        "forward": divergences(Reader(bidirectional=False)),  # the first RNN
        "both": divergences(Reader(bidirectional=True)),
    }
