"""A model small enough that all it can ever say can be written down."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from heedful.data.collate import Batch, Sources
from heedful.search import Step
from heedful.tasks.model import Model, Transduced
from heedful.text.vocabulary import EOS, PAD
from heedful.training.objectives.outputs import Limits, Output

SIZE = 5  # all symbols may be said, those that no reference has and the padding among them
A = 4
LIMITS = Limits(1.0, 1)


class Toy(Model):
    """Log-probabilities for every source and everything said before, as one table of logits."""

    def __init__(self, seed: int = 0, scale: float = 0.7) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        logits = scale * torch.randn(2, 1 + SIZE + SIZE**2, SIZE, generator=generator)
        self.logits = nn.Parameter(logits.double())

    def start(self, sources: Sources) -> Any:
        """The state is the number of the source and the code of what was said."""
        numbers = sources.tokens[:, 0]
        return (numbers, torch.full_like(numbers, -1))

    def step(self, tokens: Tensor, state: Any) -> Step[Any]:
        """Read one token; the first of them is the begin symbol."""
        number, code = state
        code = torch.where(code < 0, 0, SIZE * code + 1 + tokens)
        said = self.logits.log_softmax(dim=-1)[number, code]
        return Step(said, (number, code), said.new_zeros(len(tokens), 1))

    def forward(self, batch, teacher_share=1.0, own="drawn", *, need_weights=True) -> Transduced:
        """Read known targets step by step."""
        state, said = self.start(batch.sources), []
        for tokens in batch.inputs.unbind(dim=1):
            step = self.step(tokens, state)
            state = step.state
            said.append(step.log_probs)
        return Transduced(torch.stack(said, dim=1), None, {})


def toy_batch(copies: int = 1) -> Batch:
    """Two sources, one to be answered by a word, the other by nothing; each so many times."""
    sources = Sources(torch.tensor([[0], [1]] * copies), torch.ones(2 * copies, dtype=torch.long))
    targets = torch.tensor([[A, EOS], [EOS, PAD]] * copies)
    inputs = torch.tensor([[2, A], [2, PAD]] * copies)
    return Batch(sources, inputs, targets)


REFERENCES = [(A,), ()]


def everything(limit: int) -> Iterator[Output]:
    """All that can be said within a limit: whole outputs that are shorter, and cut ones."""
    symbols = [token for token in range(SIZE) if token != EOS]
    for length in range(limit):
        yield from (Output(tokens) for tokens in product(symbols, repeat=length))
    yield from (Output(tokens, is_cut=True) for tokens in product(symbols, repeat=limit))


def likelihood(logits: Tensor, source: int, output: Output) -> Tensor:
    """The product of the probabilities of what is said, one by one."""
    total, code = torch.ones((), dtype=torch.double), 0
    for token in output.targets:
        total = total * logits[source, code].softmax(dim=0)[token]
        code = SIZE * code + 1 + token
    return total
