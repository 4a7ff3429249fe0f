"""Outputs: what does a model say by itself, and how likely does it find it?

Outputs are drawn without gradients, exactly as likely as the model finds them, and then read once
more, with gradients. They are drawn from the model as it is used and not as it trains: dropout
would drop anew at every step, so that what is drawn would come from a distribution that no reading
of a whole output has; and an output that is to become better is one that people would see.

An output that has grown to its limit is cut: it has no end symbol, and its likelihood is that of
the tokens it has. So the likelihoods of all outputs that can be drawn add up to one. An empty
output is the end symbol alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from heedful.data.collate import Batch
from heedful.nested import select
from heedful.search.sampling import Sampling, sample
from heedful.shapes import Float, Int
from heedful.tasks.model import Model
from heedful.text.vocabulary import BOS, EOS, PAD


class Output(NamedTuple):
    """What may be said of a source."""

    tokens: tuple[int, ...]  # without begin and end
    is_cut: bool = False  # whether it had to stop before its end

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens that are said, with the end if it has one."""
        return self.tokens if self.is_cut else (*self.tokens, EOS)


class Limits(NamedTuple):
    """How long outputs may grow, by the length of their reference."""

    ratio: float
    extra: int

    def __call__(self, batch: Batch) -> Int[Tensor, "B"]:
        """Say how many tokens there may be, the end symbol counted."""
        lengths = (batch.targets != PAD).sum(dim=1) - 1
        return (lengths * self.ratio).long() + self.extra


def references(batch: Batch) -> list[Output]:
    """Give what should be said."""
    return [Output(tuple(row[: row.index(EOS)])) for row in batch.targets.tolist()]


@torch.no_grad()
def draw(
    model: Model, batch: Batch, limits: Int[Tensor, "B"], *, count: int, how: Sampling | None = None
) -> list[list[Output]]:
    """Draw so many outputs for every source; chance is that of the whole process."""
    rows = torch.arange(len(limits), device=limits.device).repeat_interleave(count)
    seed = int(torch.randint(2**62, ()))
    with _in_use(model):
        found = sample(
            model,
            select(model.start(batch.sources), rows),
            begin=torch.full_like(rows, BOS),
            end=EOS,
            max_lengths=limits[rows],
            how=how,
            seed=seed,
        )
    longest = limits[rows].tolist()
    drawn = [
        Output(tuple(each), len(each) == most) for each, most in zip(found, longest, strict=True)
    ]
    return [drawn[first : first + count] for first in range(0, len(drawn), count)]


class Told(NamedTuple):
    """How likely a model finds the outputs of each source."""

    log_likelihoods: Float[Tensor, "B K"]  # of outputs; -inf where a source has fewer of them
    log_probs: Float[Tensor, "B T N"]  # of tokens, for the first output of each source
    penalties: dict[str, Float[Tensor, ""]]  # as if there were one output: the mean over all


def tell(model: nn.Module, batch: Batch, outputs: Sequence[Sequence[Output]]) -> Told:
    """Say how likely outputs are for the sources of a batch, all of them at once."""
    sizes = [len(each) for each in outputs]
    flat = [output for each in outputs for output in each]
    device = batch.targets.device
    sources = torch.arange(len(outputs)).repeat_interleave(torch.tensor(sizes)).to(device)
    lengths = torch.tensor([len(output.targets) for output in flat], device=device)
    # No narrower than the batch, whose own targets are then among those that are told of.
    targets = _padded([output.targets for output in flat], batch.targets.size(1)).to(device)
    inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], dim=1)
    log_probs, _, penalties = model(
        Batch(select(batch.sources, sources), inputs, targets), need_weights=False
    )
    chosen = _precise(log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1))  # (C, T)
    # By lengths and not by symbols: a model may draw the padding symbol too.
    real = torch.arange(targets.size(1), device=device) < lengths.unsqueeze(1)
    totals = chosen.masked_fill(~real, 0).sum(dim=1).split(sizes)
    firsts = lengths.new_tensor(sizes).cumsum(dim=0) - lengths.new_tensor(sizes)
    return Told(
        pad_sequence(list(totals), batch_first=True, padding_value=-torch.inf),
        log_probs[firsts, : batch.targets.size(1)],
        {name: penalty * (len(sizes) / len(flat)) for name, penalty in penalties.items()},
    )


@contextmanager
def _in_use(model: nn.Module) -> Iterator[None]:
    """Ask a model as it is when nothing is learned; afterwards it is as it was."""
    learning = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in learning:
            module.training = True
        # Autocast keeps the weights it has cast. Older versions of torch would give these, cast
        # without gradients, to the reading that is to have some (pytorch issue 158232).
        torch.clear_autocast_cache()


def _padded(rows: Sequence[Sequence[int]], width: int) -> Int[Tensor, "C T"]:
    width = max(width, *map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def _precise(numbers: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Half precision cannot add up the tokens of a long output."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))
