"""Decodables: what can be asked for outputs?

Whatever reads sources and can then be asked step by step, a model or several of them together, can
be searched, drawn from, and asked what it thinks of outputs that are given. Law: all three say the
same of an output, whichever batch its source is in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.data.collate import Sources
from heedful.layers.fused.packing import weights_at_rest
from heedful.nested import select
from heedful.search import (
    FIRST,
    CoveragePenalty,
    Hypothesis,
    LengthPenalty,
    Rule,
    Searching,
    Step,
    Trellis,
    beam_search,
    score,
)
from heedful.search.drawing import draw_outputs
from heedful.search.sampling import Sampling, streams
from heedful.shapes import Int
from heedful.text.vocabulary import BOS, EOS


class Decodable(ABC):
    """Something that writes about sources."""

    @abstractmethod
    def start(self, sources: Sources) -> Any:
        """Read sources, to write about them step by step."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> Step[Any]:
        """Read one token; say how likely each next one is."""

    @torch.inference_mode()
    @weights_at_rest()
    def search(
        self,
        sources: Sources,
        *,
        width: int,
        max_lengths: Int[Tensor, "B"],
        penalty: LengthPenalty,
        how: Searching | None = None,
        trellis: Trellis | None = None,
    ) -> list[list[Hypothesis]]:
        """Find likely targets for each source, best first; with width 1 greedily."""
        how = how or Searching()
        return beam_search(
            self,
            self.start(sources),
            begin=BOS,
            end=EOS,
            width=width,
            max_lengths=max_lengths,
            penalty=penalty,
            how=how._replace(stopping=FIRST) if width == 1 else how,
            source_lengths=sources.lengths,
            trellis=trellis,
        )

    @torch.inference_mode()
    @weights_at_rest()
    def score(
        self,
        sources: Sources,
        targets: Sequence[Sequence[int]],
        *,
        penalty: LengthPenalty | None = None,
        coverage: CoveragePenalty | None = None,
    ) -> list[Hypothesis]:
        """Say of given targets, one for each source, what a search would say of them."""
        return score(
            self,
            self.start(sources),
            targets,
            begin=BOS,
            end=EOS,
            device=sources.tokens.device,
            penalty=penalty,
            coverage=coverage,
            source_lengths=sources.lengths,
        )

    @torch.inference_mode()
    @weights_at_rest()
    def sample(
        self,
        sources: Sources,
        count: int,
        *,
        max_lengths: Int[Tensor, "B"],
        how: Sampling,
        seed: int,
        keys: Sequence[int] | None = None,
        rules: Sequence[Rule] = (),
    ) -> list[list[Hypothesis]]:
        """Draw so many targets for each source.

        What is drawn for a source depends on the seed and on its key, whichever batch it is in;
        without keys, on its place in this one. More of them begin with the same ones.
        """
        keys = range(len(max_lengths)) if keys is None else keys
        rows = torch.arange(len(max_lengths), device=max_lengths.device).repeat_interleave(count)
        drawn = draw_outputs(
            self,
            select(self.start(sources), rows),
            begin=BOS,
            end=EOS,
            sentences=rows,
            max_lengths=max_lengths,
            how=how,
            chance=streams(seed, [f"{key} {number}" for key in keys for number in range(count)]),
            rules=rules,
        )
        return [drawn[first : first + count] for first in range(0, len(drawn), count)]
