"""Models: what can be trained on pairs and asked for targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.data.collate import Batch, Sources
from heedful.decoders.own_tokens import Own
from heedful.search import (
    FIRST,
    CoveragePenalty,
    Hypothesis,
    LengthPenalty,
    Searching,
    Step,
    Trellis,
    beam_search,
    score,
)
from heedful.shapes import Float, Int
from heedful.text.vocabulary import BOS, EOS


class Transduced(NamedTuple):
    """Known targets as the model sees them, and what is wrong with how it came to that."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"] | None  # where it looked; None if not needed
    penalties: dict[str, Float[Tensor, ""]]  # by name; sums over the real targets


class Model(nn.Module, ABC):
    """A model of targets, given sources."""

    @abstractmethod
    def forward(
        self,
        batch: Batch,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Transduced:
        """Say how likely each token of known targets is.

        Of the tokens before it each is the known one with probability `teacher_share`, and
        otherwise the model's own. Whoever does not need to know where was looked may not be told.
        """

    @abstractmethod
    def start(self, sources: Sources) -> Any:
        """Read sources, to write about them step by step."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> Step[Any]:
        """Read one token; say how likely each next one is."""

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
