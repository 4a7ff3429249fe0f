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

from heedful.attention.outputs import Memory
from heedful.layers.self_attention import KVCache
from heedful.pytree import SharedRows, map_tensors, select_rows
from heedful.shapes import Bool, Int

MAX_SHARED_BEAM_SIZE = 16
"""Rows of a family; each is shown the places of all others, which it is told to overlook."""


class SharedCaches(NamedTuple):
    """What families have, with a row for each; each layer has its own."""

    memories: tuple[Memory, ...]
    kv_caches: tuple[KVCache, ...] | None  # None before anything was said


class BeamSharedState(NamedTuple):
    """The state of hypotheses that come in families."""

    shared_rows: SharedRows
    visible: (
        Bool[Tensor, "R P"] | None
    )  # the places of its family that a row has come by; None: all
    start_positions: Int[Tensor, "R"]  # the number of the next place

    @classmethod
    def from_memories(
        cls,
        memories: tuple[Memory, ...],
        start_positions: Int[Tensor, "R"],
        kv_cache: tuple[KVCache, ...] | None = None,
    ) -> BeamSharedState:
        """Let every row have a family of its own."""
        rows = torch.arange(len(start_positions), device=start_positions.device)
        return cls(SharedRows(SharedCaches(memories, kv_cache), rows), None, start_positions)

    @property
    def caches(self) -> SharedCaches:
        """What the families have."""
        return cast(SharedCaches, self.shared_rows.value)

    @property
    def num_sentences(self) -> int:
        """How many there are."""
        return len(self.caches.memories[0].values)

    def regroup(self) -> BeamSharedState:
        """These, so that the rows of a family stand together, and all have as many.

        Families without rows are left out. Where some have more rows than others, or more than
        can be told apart at little cost, every row gets a family of its own.
        """
        rows = self.shared_rows.row_index.numpy()
        beam_size, rest = divmod(len(rows), self.num_sentences)
        is_small = 0 < beam_size <= MAX_SHARED_BEAM_SIZE and not rest
        if is_small and (rows == np.arange(self.num_sentences).repeat(beam_size)).all():
            return self
        chosen, counts = np.unique(rows, return_counts=True)
        is_even = (counts == counts[0]).all() and (rows == chosen.repeat(counts)).all()
        if not is_even or counts[0] > MAX_SHARED_BEAM_SIZE:
            sources, held = self.per_row()
            return BeamSharedState.from_memories(sources, self.start_positions, held)
        sentence_index = np.arange(len(chosen)).repeat(counts)
        common = select_rows(self.caches, torch.from_numpy(chosen))
        return self._replace(shared_rows=SharedRows(common, torch.from_numpy(sentence_index)))

    def next_visibility(self) -> Bool[Tensor, "R P2"] | None:
        """What rows have come by once each has added a place to those of its family."""
        num_rows = len(self.start_positions)
        beam_size = num_rows // self.num_sentences
        if beam_size == 1 and self.visible is None:
            return None
        held = self.caches.kv_caches
        num_held = 0 if held is None else held[0].values.size(-2)
        seen = (
            torch.ones(num_rows, num_held, dtype=torch.bool)
            if self.visible is None
            else self.visible
        )
        sentence_index = torch.eye(beam_size, dtype=torch.bool).repeat(self.num_sentences, 1)
        return torch.cat([seen, sentence_index], dim=1)

    def append(
        self, kv_cache: tuple[KVCache, ...], visible: Bool[Tensor, "R P"] | None
    ) -> BeamSharedState:
        """These, once every row has added a place."""
        common = SharedRows(self.caches._replace(kv_caches=kv_cache), self.shared_rows.row_index)
        return BeamSharedState(common, visible, self.start_positions + 1)

    def per_row(self) -> SharedCaches:
        """What each row has, by itself."""
        common = select_rows(self.caches, self.shared_rows.row_index)
        if self.visible is None or common.kv_caches is None:
            return common
        # Every row has come by as many places.
        places = self.visible.nonzero()[:, 1].view(len(self.start_positions), 1, -1, 1)
        held = map_tensors(lambda each: each.take_along_dim(places, dim=-2), common.kv_caches)
        return common._replace(kv_caches=held)
