"""A key-value cache shared by all hypotheses of a sentence.

The hypotheses of a sentence attend to one memory of its source and to one cache, which holds every
position that any of them has added. Each row has a mask over the cached positions. Reordering the
beam changes masks and row indices, not the cache.

Invariant: after any reordering, every row continues as if it were decoded alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.acceleration import tuning
from heedful.attention.outputs import Memory
from heedful.layers.self_attention import KVCache
from heedful.pytree import map_tensors, select_rows
from heedful.shapes import Bool, Int


class SentenceCaches(NamedTuple):
    """Memories and caches of all layers, with one row per sentence."""

    memories: tuple[Memory, ...]
    kv_caches: tuple[KVCache, ...] | None  # None before the first step


class SharedCaches(NamedTuple):
    """Caches of sentences, and the sentence of each row."""

    caches: SentenceCaches
    sentence_index: Int[Tensor, "R"]

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> SharedCaches:
        """Select rows; the caches stay where they are."""
        return self._replace(sentence_index=transform(self.sentence_index))


class BeamSharedState(NamedTuple):
    """Decoding state of hypotheses that share caches."""

    shared: SharedCaches
    visible: Bool[Tensor, "R P"] | None
    """The cached positions that belong to a row; None if all do."""
    start_positions: Int[Tensor, "R"]

    @classmethod
    def from_memories(
        cls,
        memories: tuple[Memory, ...],
        start_positions: Int[Tensor, "R"],
        kv_caches: tuple[KVCache, ...] | None = None,
    ) -> BeamSharedState:
        """Return a state in which every row is a sentence of its own."""
        rows = torch.arange(len(start_positions), device=start_positions.device)
        caches = SentenceCaches(memories, kv_caches)
        return cls(SharedCaches(caches, rows), None, start_positions)

    @property
    def caches(self) -> SentenceCaches:
        """Memories and caches of the sentences."""
        return self.shared.caches

    @property
    def num_sentences(self) -> int:
        """Rows of the caches."""
        return len(self.caches.memories[0].values)

    def regroup(self) -> BeamSharedState:
        """Return the state with the rows of a sentence side by side, the same number for each.

        Sentences without rows are dropped. Where some have more rows than others, or more than can
        share a cache at little cost, every row becomes a sentence of its own.
        """
        rows = self.shared.sentence_index.numpy()
        beam_size, rest = divmod(len(rows), self.num_sentences)
        is_small = 0 < beam_size <= tuning.MAX_SHARED_BEAM_SIZE and not rest
        if is_small and (rows == np.arange(self.num_sentences).repeat(beam_size)).all():
            return self
        sentences, counts = np.unique(rows, return_counts=True)
        is_even = (counts == counts[0]).all() and (rows == sentences.repeat(counts)).all()
        if not is_even or counts[0] > tuning.MAX_SHARED_BEAM_SIZE:
            memories, kv_caches = self.per_row()
            return BeamSharedState.from_memories(memories, self.start_positions, kv_caches)
        caches = select_rows(self.caches, torch.from_numpy(sentences))
        sentence_index = torch.from_numpy(np.arange(len(sentences)).repeat(counts))
        return self._replace(shared=SharedCaches(caches, sentence_index))

    def next_visible(self) -> Bool[Tensor, "R P2"] | None:
        """Return the mask after a step in which every row adds a position to its sentence."""
        num_rows = len(self.start_positions)
        beam_size = num_rows // self.num_sentences
        if beam_size == 1 and self.visible is None:
            return None
        visible = self.visible
        if visible is None:
            kv_caches = self.caches.kv_caches
            num_cached = 0 if kv_caches is None else kv_caches[0].values.size(-2)
            visible = torch.ones(num_rows, num_cached, dtype=torch.bool)
        added = torch.eye(beam_size, dtype=torch.bool).repeat(self.num_sentences, 1)
        return torch.cat([visible, added], dim=1)

    def advance(
        self, kv_caches: tuple[KVCache, ...], visible: Bool[Tensor, "R P"] | None
    ) -> BeamSharedState:
        """Return the state after a step in which every row has added a position."""
        shared = self.shared._replace(caches=self.caches._replace(kv_caches=kv_caches))
        return BeamSharedState(shared, visible, self.start_positions + 1)

    def per_row(self) -> SentenceCaches:
        """Return memories and caches with one row for each hypothesis."""
        caches = select_rows(self.caches, self.shared.sentence_index)
        if self.visible is None or caches.kv_caches is None:
            return caches
        # All rows have the same number of visible positions.
        positions = self.visible.nonzero()[:, 1].view(len(self.start_positions), 1, -1, 1)
        return caches._replace(
            kv_caches=map_tensors(
                lambda cache: cache.take_along_dim(positions, dim=-2), caches.kv_caches
            )
        )
