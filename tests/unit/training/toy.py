"""A model small enough that all it can ever say can be written down."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.base import ModelOutput, Seq2SeqModel
from heedful.search import StepOutput
from heedful.tokenization.vocabulary import EOS, PAD
from heedful.training.rollouts import LengthLimit, Rollout

SIZE = 5  # all symbols may be said, those that no reference has and the padding among them
A = 4
LIMITS = LengthLimit(1.0, 1)


class Toy(Seq2SeqModel):
    """Log-probabilities for every source and everything said before, as one table of logits."""

    def __init__(self, seed: int = 0, scale: float = 0.7) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        logits = scale * torch.randn(2, 1 + SIZE + SIZE**2, SIZE, generator=generator)
        self.logits = nn.Parameter(logits.double())

    def initial_state(self, sources: SourceBatch) -> Any:
        """The state is the number of the source and the code of what was said."""
        numbers = sources.tokens[:, 0]
        return (numbers, torch.full_like(numbers, -1))

    def step(self, tokens: Tensor, state: Any) -> StepOutput[Any]:
        """Read one token; the first of them is the begin symbol."""
        number, code = state
        code = torch.where(code < 0, 0, SIZE * code + 1 + tokens)
        said = self.logits.log_softmax(dim=-1)[number, code]
        return StepOutput(said, (number, code), said.new_zeros(len(tokens), 1))

    def forward_scheduled_sampling(self, batch, sampler):
        """No test of sequence-level objectives samples inputs."""
        raise NotImplementedError

    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        """Read known targets step by step."""
        state, said = self.initial_state(batch.sources), []
        for tokens in batch.decoder_inputs.unbind(dim=1):
            step = self.step(tokens, state)
            state = step.state
            said.append(step.log_probs)
        return ModelOutput(torch.stack(said, dim=1), None, {})


def toy_batch(copies: int = 1) -> Batch:
    """Two sources, one to be answered by a word, the other by nothing; each so many times."""
    sources = SourceBatch(
        torch.tensor([[0], [1]] * copies), torch.ones(2 * copies, dtype=torch.long)
    )
    targets = torch.tensor([[A, EOS], [EOS, PAD]] * copies)
    inputs = torch.tensor([[2, A], [2, PAD]] * copies)
    return Batch(sources, inputs, targets)


REFERENCES = [(A,), ()]


def everything(limit: int) -> Iterator[Rollout]:
    """All that can be said within a limit: whole outputs that are shorter, and cut ones."""
    symbols = [token for token in range(SIZE) if token != EOS]
    for length in range(limit):
        yield from (Rollout(tokens) for tokens in product(symbols, repeat=length))
    yield from (Rollout(tokens, is_truncated=True) for tokens in product(symbols, repeat=limit))


def likelihood(logits: Tensor, source: int, output: Rollout) -> Tensor:
    """The product of the probabilities of what is said, one by one."""
    total, code = torch.ones((), dtype=torch.double), 0
    for token in output.targets:
        total = total * logits[source, code].softmax(dim=0)[token]
        code = SIZE * code + 1 + token
    return total
