"""Too large a vector (experiment, half a minute of machine time).

A GRU reads 8 tokens into one vector, and a layer names the most frequent token. There are 60 training
examples. Compare a vector of 4 with one of 128: training loss, best dev loss, last dev loss. Is
"smaller is better" right?
"""

import torch
from torch import nn

SIZE, T = 5, 8


class Reader(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(SIZE, 16), nn.GRU(16, size, batch_first=True)
        self.out = nn.Linear(size, SIZE)

    def forward(self, tokens):
        return self.out(self.rnn(self.embedding(tokens))[0][:, -1])


def sample(count):
    tokens = torch.randint(SIZE, (count, T))
    counts = nn.functional.one_hot(tokens, SIZE).sum(1)
    return tokens, counts.argmax(-1)


def loss_of(model, tokens, targets):
    with torch.no_grad():
        return nn.functional.cross_entropy(model(tokens), targets).item()


def fit(size, train, dev, steps=400):
    model = Reader(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    dev_losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(train[0]), train[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dev_loss = loss_of(model, *dev)  # blank
        dev_losses.append(dev_loss)
    best = min(dev_losses)  # blank
    return {"train": loss_of(model, *train), "best": best, "last": dev_losses[-1]}


def compare_sizes(seed):
    torch.manual_seed(seed)
    train, dev = sample(60), sample(300)
    return {"small": fit(4, train, dev), "large": fit(128, train, dev)}
