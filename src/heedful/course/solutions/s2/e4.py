"""The cheating language model (experiment, half a minute of machine time).

A one-layer model of a Markov chain, with and without causal mask. Fill in the mask and the sampling,
then compare: loss with the mask, loss without it, and -log P, under the true chain, of what the
model without mask writes. Predict the three numbers first.
"""

import math

import torch
from torch import nn

SIZE, T, WIDTH = 12, 16, 32


class Model(nn.Module):
    """One layer of attention; the mask may be switched off."""

    def __init__(self, is_masked):
        super().__init__()
        self.is_masked = is_masked
        self.embedding, self.position = nn.Embedding(SIZE + 1, WIDTH), nn.Embedding(T, WIDTH)
        self.qk, self.value = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.hidden, self.out = nn.Linear(2 * WIDTH, 64), nn.Linear(64, SIZE)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.weight[: tokens.size(1)]
        q, k = self.qk(x).chunk(2, -1)
        scores = q @ k.mT / math.sqrt(WIDTH)
        mask = torch.ones(T, T).tril().bool()  # blank
        if self.is_masked:
            scores = scores.masked_fill(~mask[: tokens.size(1), : tokens.size(1)], -torch.inf)
        mixed = scores.softmax(-1) @ self.value(x)
        return self.out(self.hidden(torch.cat([x, mixed], -1)).relu()).log_softmax(-1)


def chain(generator):
    """Return a transition matrix and the function that samples from it."""
    matrix = (1.5 * torch.randn(SIZE, SIZE, generator=generator)).softmax(-1)

    def sample(count):
        tokens = [torch.randint(SIZE, (count,), generator=generator)]
        for _ in range(T):
            tokens.append(torch.multinomial(matrix[tokens[-1]], 1, generator=generator)[:, 0])
        return torch.stack(tokens, 1)

    return matrix, sample


def train(model, sample, steps=400):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens = sample(64)
        loss = nn.functional.nll_loss(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = sample(500)
    with torch.no_grad():
        predicted = model(tokens[:, :-1]).flatten(0, 1)
        return nn.functional.nll_loss(predicted, tokens[:, 1:].flatten()).item()


def write(model, generator):
    """Let a model write 200 texts."""
    tokens = torch.randint(SIZE, (200, 1), generator=generator)
    for _ in range(T - 1):
        log_probs = model(tokens)
        chosen = torch.multinomial(log_probs[:, -1].exp(), 1, generator=generator)  # blank
        tokens = torch.cat([tokens, chosen], 1)
    return tokens


def cheating(seed):
    """Return entropy, the two losses, -log P of samples, and the leak of the masked model."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    matrix, sample = chain(generator)
    masked, unmasked = Model(is_masked=True), Model(is_masked=False)
    losses = train(masked, sample), train(unmasked, sample)
    with torch.no_grad():
        texts = write(unmasked, generator)
        truth = -matrix[texts[:, :-1], texts[:, 1:]].log().mean().item()
        tokens = sample(20)[:, :-1]
        changed = tokens.clone()
        changed[:, T // 2] = (changed[:, T // 2] + 1) % SIZE
        leak = (masked(tokens) - masked(changed))[:, : T // 2].abs().max().item()
    tokens = sample(2000)
    entropy = -matrix[tokens[:, :-1], tokens[:, 1:]].log().mean().item()
    return [entropy, *losses, truth, leak]
