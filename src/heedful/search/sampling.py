"""Sampling: outputs drawn as likely as the model finds them.

Law: what is drawn for a row depends on the seed, the number of the row and what the model says of
it, and never on its neighbours: each row has a stream of random numbers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nested import select
from heedful.search.protocol import State, Steps
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
        ranked, tokens = log_probs.double().sort(dim=-1, descending=True, stable=True)
        if self.temperature == 0:
            return tokens[:, 0]
        chances = self._keep(ranked / self.temperature)
        heap = chances.cumsum(dim=-1)
        aims = torch.tensor(luck, dtype=heap.dtype, device=heap.device).unsqueeze(1)
        found = torch.searchsorted(heap, aims * heap[:, -1:], right=True)
        places = torch.arange(heap.size(1), device=heap.device)
        last = places.where(chances > 0, 0).amax(dim=-1, keepdim=True)
        return tokens.gather(1, found.minimum(last)).squeeze(1)

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


class Drawn(NamedTuple):
    """The tokens of one step: which rows go on, and with what."""

    rows: list[int]
    tokens: list[int]


@torch.no_grad()
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
    chance = [Random(f"{seed} {row}") for row in range(len(begin))]
    rows, depth = max_lengths.nonzero().flatten(), 0
    tokens, state = begin[rows], select(state, rows)
    written = begin.new_empty(len(rows), 0)
    while len(rows):
        step = model.step(tokens, state)
        left, _ = apply_all(rules, step.log_probs, written, rows, end=end)
        tokens = how.draw(left, [chance[row].random() for row in rows.tolist()])
        depth += 1
        goes_on = torch.ones_like(tokens, dtype=torch.bool) if end is None else tokens != end
        yield Drawn(rows[goes_on].tolist(), tokens[goes_on].tolist())
        alive = (goes_on & (depth < max_lengths[rows])).nonzero().flatten()
        state = step.state if len(alive) == len(rows) else select(step.state, alive)
        rows, tokens = rows[alive], tokens[alive]
        written = torch.cat([written[alive], tokens.unsqueeze(1)], dim=1)


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
