"""Sampling: outputs drawn as likely as the model finds them.

Law: what is drawn for a row depends on the seed, the number of the row and what the model says of
it, and never on its neighbours: each row has a stream of random numbers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.nested import select
from heedful.search.protocol import State, Step, Steps
from heedful.search.rules import Rule, apply_all
from heedful.shapes import Float, Int


class Sampling(NamedTuple):
    """How tokens are drawn; as it stands, by their probabilities.

    First the log-probabilities are divided by the `temperature`; at 0 only the likeliest token is
    left. Then the `top_k` likeliest are kept (Fan et al. 2018); of these the fewest whose
    probabilities add up to `top_p` (Holtzman et al. 2020, section 3.1); of these what is at least
    `min_p` times as likely as the likeliest (Nguyen et al. 2025, section 3); and of these the
    fewest that add up to `typical`, those first whose surprise -log p is nearest to the one that
    is expected (Meister et al. 2023, equation 10). After each, what is kept is again all there is.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    without: tuple[int, ...] = ()  # tokens that are never drawn
    min_p: float = 0.0
    typical: float = 1.0

    def draw(self, log_probs: Float[Tensor, "B N"], luck: Sequence[float]) -> Int[Tensor, "B"]:
        """Draw a token for each row, by a number from 0 to 1 that chance gave it."""
        if self.without:
            log_probs = log_probs.index_fill(1, _ids(self.without, log_probs), -torch.inf)
        if self.temperature == 0:
            return log_probs.argmax(dim=-1)
        heap = self._chances(log_probs.double() / self.temperature).cumsum(dim=-1)
        whole = heap[:, -1]
        aims = torch.tensor(luck, dtype=heap.dtype, device=heap.device) * whole
        aims = aims.minimum(whole.nextafter(torch.zeros_like(whole)))  # rounding may reach the top
        found = torch.searchsorted(heap, aims.unsqueeze(1), right=True).squeeze(1)
        return found.clamp(max=heap.size(1) - 1)  # past the end where chances are not numbers

    def _chances(self, logits: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """Say how likely each token is drawn, in the order of the vocabulary.

        Were they in the order of their ranks, two that are all but equally likely could change
        places when rounding differs, and with it what is drawn.
        """
        if self.top_k is None and self.min_p == 0 and min(self.top_p, self.typical) >= 1:
            return logits.softmax(dim=-1)
        ranked, tokens = logits.sort(dim=-1, descending=True, stable=True)
        kept = self._keep(ranked)
        return torch.zeros_like(logits).scatter(1, tokens[:, : kept.size(1)], kept)

    def _keep(self, ranked: Float[Tensor, "B N"]) -> Float[Tensor, "B _"]:
        """Turn ranked logits into the chances of the tokens that may be drawn."""
        chances = ranked[:, : self.top_k].softmax(dim=-1)
        chances = _fewest(chances, self.top_p)
        chances = chances.masked_fill(chances < self.min_p * chances[:, :1], 0)
        return _typical(chances, self.typical) if self.typical < 1 else chances


def _fewest(chances: Float[Tensor, "B N"], share: float) -> Float[Tensor, "B N"]:
    """Keep the first few that add up to a share of the whole."""
    before = chances.cumsum(dim=-1) - chances
    return chances.masked_fill(before >= share, 0)


def _typical(chances: Float[Tensor, "B N"], share: float) -> Float[Tensor, "B N"]:
    """Keep those nearest to the expected surprise that add up to a share of what is left."""
    chances = chances / chances.sum(dim=-1, keepdim=True)
    surprise = -chances.log()
    expected = torch.special.entr(chances).sum(dim=-1, keepdim=True)
    order = (surprise - expected).abs().sort(dim=-1, stable=True).indices
    kept = _fewest(chances.gather(1, order), share)
    return torch.zeros_like(chances).scatter(1, order, kept)


class Draw(NamedTuple):
    """One step of drawing."""

    rows: Int[Tensor, "R"]  # those that were in the batch
    step: Step[Any]  # what the model said of them
    tokens: Int[Tensor, "R"]  # what was drawn for each
    alive: Int[Tensor, "R2"]  # places among them of those that go on


@torch.no_grad()
def draws(
    model: Steps[State],
    state: State,
    *,
    begin: Int[Tensor, "R"],
    end: int | None,
    limits: Int[Tensor, "R"],
    how: Sampling,
    chance: Sequence[Random],
    rules: Sequence[Rule] = (),
    sentences: Int[Tensor, "R"] | None = None,
) -> Iterator[Draw]:
    """Draw outputs a token at a time; a row that has ended, or is at its limit, leaves the batch.

    Each row has its own `chance`. Rules know a row by its sentence, or else by its number.
    """
    rows, depth = limits.nonzero().flatten(), 0
    tokens, state = begin[rows], select(state, rows)
    written = begin.new_empty(len(rows), 0)
    while len(rows):
        step = model.step(tokens, state)
        owners = rows if sentences is None else sentences[rows]
        left, _ = apply_all(rules, step.log_probs, written, owners, end=end)
        tokens = how.draw(left, [chance[row].random() for row in rows.tolist()])
        depth += 1
        goes_on = limits[rows] > depth
        alive = (goes_on if end is None else goes_on & (tokens != end)).nonzero().flatten()
        yield Draw(rows, step, tokens, alive)
        state = step.state if len(alive) == len(rows) else select(step.state, alive)
        rows, tokens = rows[alive], tokens[alive]
        written = torch.cat([written[alive], tokens.unsqueeze(1)], dim=1)


def streams(seed: int, keys: Iterable[int | str]) -> list[Random]:
    """Make random numbers for each key; what a stream holds follows from the seed and its key."""
    return [Random(f"{seed} {key}") for key in keys]


class Drawn(NamedTuple):
    """The tokens of one step: which rows go on, and with what."""

    rows: list[int]
    tokens: list[int]


def sampling_steps(
    model: Steps[State],
    state: State,
    *,
    begin: Int[Tensor, "B"],
    end: int | None,
    max_lengths: Int[Tensor, "B"],
    how: Sampling,
    seed: int,
    rules: Sequence[Rule] = (),
) -> Iterator[Drawn]:
    """Draw outputs a token at a time; a row that ends leaves the batch, its end not given out.

    `begin` is the token that each row reads first. Without an `end` only the lengths end it.
    """
    for rule in rules:
        rule.refuse(max_lengths.tolist())
    chance = streams(seed, range(len(begin)))
    for rows, _, tokens, _ in draws(
        model,
        state,
        begin=begin,
        end=end,
        limits=max_lengths,
        how=how,
        chance=chance,
        rules=rules,
    ):
        said = slice(None) if end is None else tokens != end
        yield Drawn(rows[said].tolist(), tokens[said].tolist())


def sample(
    model: Steps[State],
    state: State,
    *,
    begin: Int[Tensor, "B"],
    end: int | None,
    max_lengths: Int[Tensor, "B"],
    how: Sampling | None = None,
    seed: int = 0,
    rules: Sequence[Rule] = (),
) -> list[list[int]]:
    """Draw an output for every row, without its begin and end."""
    written: list[list[int]] = [[] for _ in range(len(begin))]
    steps = sampling_steps(
        model,
        state,
        begin=begin,
        end=end,
        max_lengths=max_lengths,
        how=how or Sampling(),
        seed=seed,
        rules=rules,
    )
    for drawn in steps:
        for row, token in zip(drawn.rows, drawn.tokens, strict=True):
            written[row].append(token)
    return written


def _ids(tokens: Sequence[int], like: Tensor) -> Int[Tensor, "_"]:
    return torch.tensor(tokens, device=like.device)
