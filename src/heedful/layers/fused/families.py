"""Families: what have the hypotheses of one sentence in common?

They look at the same source, and at what one or another of them has said. So a family has one
memory of its source, and one of all the places that any of its rows ever added; a row only knows
which of those it has come by. A beam is pruned without moving anything, and what a family looks at
is multiplied by all its queries at once. Law: whatever rows are selected, each goes on as it would
have gone on alone.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from heedful.attention.attend import Memory
from heedful.layers.self_attention import Held
from heedful.nested import Shared, map_tensors, select
from heedful.shapes import Bool, Int

MOST_SIBLINGS = 16
"""Rows of a family; each is shown the places of all others, which it is told to overlook."""


class Common(NamedTuple):
    """What families have, with a row for each; each layer has its own."""

    sources: tuple[Memory, ...]
    held: tuple[Held, ...] | None  # None before anything was said


class Families(NamedTuple):
    """The state of hypotheses that come in families."""

    common: Shared
    seen: Bool[Tensor, "R P"] | None  # the places of its family that a row has come by; None: all
    first: Int[Tensor, "R"]  # the number of the next place

    @classmethod
    def of(
        cls,
        sources: tuple[Memory, ...],
        first: Int[Tensor, "R"],
        held: tuple[Held, ...] | None = None,
    ) -> Families:
        """Let every row have a family of its own."""
        rows = torch.arange(len(first), device=first.device)
        return cls(Shared(Common(sources, held), rows), None, first)

    @property
    def shared(self) -> Common:
        """What the families have."""
        return cast(Common, self.common.of)

    @property
    def num_families(self) -> int:
        """How many there are."""
        return len(self.shared.sources[0].values)

    def in_order(self) -> Families:
        """These, so that the rows of a family stand together, and all have as many.

        Families without rows are left out. Where some have more rows than others, or more than
        can be told apart at little cost, every row gets a family of its own.
        """
        rows = self.common.rows.numpy()
        siblings, rest = divmod(len(rows), self.num_families)
        is_small = 0 < siblings <= MOST_SIBLINGS and not rest
        if is_small and (rows == np.arange(self.num_families).repeat(siblings)).all():
            return self
        chosen, counts = np.unique(rows, return_counts=True)
        is_even = (counts == counts[0]).all() and (rows == chosen.repeat(counts)).all()
        if not is_even or counts[0] > MOST_SIBLINGS:
            sources, held = self.apart()
            return Families.of(sources, self.first, held)
        own = np.arange(len(chosen)).repeat(counts)
        common = select(self.shared, torch.from_numpy(chosen))
        return self._replace(common=Shared(common, torch.from_numpy(own)))

    def seen_next(self) -> Bool[Tensor, "R P2"] | None:
        """What rows have come by once each has added a place to those of its family."""
        num_rows = len(self.first)
        siblings = num_rows // self.num_families
        if siblings == 1 and self.seen is None:
            return None
        held = self.shared.held
        num_held = 0 if held is None else held[0].values.size(-2)
        seen = torch.ones(num_rows, num_held, dtype=torch.bool) if self.seen is None else self.seen
        own = torch.eye(siblings, dtype=torch.bool).repeat(self.num_families, 1)
        return torch.cat([seen, own], dim=1)

    def after(self, held: tuple[Held, ...], seen: Bool[Tensor, "R P"] | None) -> Families:
        """These, once every row has added a place."""
        common = Shared(self.shared._replace(held=held), self.common.rows)
        return Families(common, seen, self.first + 1)

    def apart(self) -> Common:
        """What each row has, by itself."""
        common = select(self.shared, self.common.rows)
        if self.seen is None or common.held is None:
            return common
        # Every row has come by as many places.
        places = self.seen.nonzero()[:, 1].view(len(self.first), 1, -1, 1)
        held = map_tensors(lambda each: each.take_along_dim(places, dim=-2), common.held)
        return common._replace(held=held)
