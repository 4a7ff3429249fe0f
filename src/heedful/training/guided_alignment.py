"""Guided alignment: attention weights are trained to agree with word alignments.

(Chen et al. 2016, for the attention of a recurrent decoder; Garg et al. 2019, for one head of a
Transformer.) Links are found by a hash of the token ids of a pair, so that datasets and batches
hold nothing but tokens. Invariant: the loss does not depend on how pairs are batched or padded.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveFloat
from torch import Tensor

from heedful.aligners.links import Link, Symmetrization
from heedful.aligners.training import AlignerConfig, HMMAlignerConfig
from heedful.config import BaseConfig
from heedful.data.text.batching import Batch
from heedful.errors import check
from heedful.shapes import Float, Int, Scalar, SourceWeights
from heedful.tokenization.ragged_array import Integers, RaggedArray

LOSS_NAME = "guided-alignment"
_LOCATION = "training.guided_alignment"
_MULTIPLIERS = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95  # of source and target; odd
_MIN_WEIGHT = 1e-8  # sparse attention has weights of zero


def hash_pairs(batch: Batch) -> NDArray[np.uint64]:
    """Return a hash of the tokens of each pair; padding, whose id is 0, adds nothing to it."""
    hashes = np.zeros(len(batch.targets), np.uint64)
    for tokens, base in zip((batch.sources.tokens, batch.targets), _MULTIPLIERS, strict=True):
        hashes = (hashes + hash_rows(tokens, base)) * np.uint64(base)
    return hashes


def hash_rows(tokens: Int[Tensor, "B T"], base: int = _MULTIPLIERS[0]) -> NDArray[np.uint64]:
    """Return a hash of each row of tokens; padding, whose id is 0, adds nothing to it."""
    powers = np.cumprod(np.full(tokens.size(1), base, np.uint64))
    return (tokens.cpu().numpy().astype(np.uint64) * powers).sum(axis=1, dtype=np.uint64)


class LinkTable(NamedTuple):
    """Links between the tokens of sentence pairs, by the hash of the pair."""

    hashes: NDArray[np.uint64]  # sorted
    sources: RaggedArray  # positions in the source, in the order of the hashes
    targets: RaggedArray

    @classmethod
    def from_links(cls, hashes: NDArray[np.uint64], links: Sequence[Iterable[Link]]) -> Self:
        """Build the table of pairs; of equal pairs the first counts."""
        hashes, rows = np.unique(hashes, return_index=True)
        sorted_links = [sorted(links[row]) for row in rows]
        sides = (
            RaggedArray.from_sequences([link[side] for link in row] for row in sorted_links)
            for side in (0, 1)
        )
        return cls(hashes, *sides)

    def __len__(self) -> int:
        return len(self.hashes)

    def normalized_links(self, batch: Batch) -> Float[Tensor, "B T S"]:
        """Return the links of each pair; rows of targets with links sum to one, others to zero."""
        num_rows, num_targets = batch.targets.shape
        matrix = np.zeros((num_rows, num_targets, batch.sources.tokens.size(1)), np.float32)
        hashes = hash_pairs(batch)
        rows: Integers = np.searchsorted(self.hashes, hashes).clip(max=max(0, len(self) - 1))
        is_known = self.hashes[rows] == hashes if len(self) else np.zeros(num_rows, bool)
        (linked,) = is_known.nonzero()
        sources, targets = (
            self.sources.select(rows[linked]),
            self.targets.select(rows[linked]),
        )
        pairs = np.repeat(linked, sources.lengths)
        matrix[pairs, targets.values, sources.values] = 1
        return torch.from_numpy(matrix / matrix.sum(axis=-1, keepdims=True).clip(min=1))


NO_LINKS = LinkTable.from_links(np.empty(0, np.uint64), ())


class AlignmentGuide(NamedTuple):
    """The links of training pairs, and the weight of the loss."""

    table: LinkTable
    weight: float

    def loss(self, weights: SourceWeights | None, batch: Batch) -> Scalar:
        """Weight * sum_t -sum_s g_ts log a_ts, g the normalized links  (Garg et al. 2019, eq. 4).

        A sum over tokens, like the cross-entropy; targets without links add nothing.
        """
        message = "this model has no attention weights that could be trained"
        hint = "remove training.guided_alignment, or choose a decoder with soft attention"
        check(weights is not None and weights.requires_grad, _LOCATION, message, hint)
        assert weights is not None
        links = self.table.normalized_links(batch).to(weights.device)
        log_weights = weights.float().clamp_min(_MIN_WEIGHT).log()
        return -self.weight * (links * log_weights).sum()


class GuidedAlignmentConfig(BaseConfig):
    """Word alignments that attention is trained to agree with."""

    links: str | None = None
    """File with a line of links for each pair of the training data, such as 0-0 1-2, between words
    that are separated by white space; pieces of words share their links. If null, `aligner` is
    trained on the tokens of the training data."""
    aligner: AlignerConfig = HMMAlignerConfig()
    """Word aligner, trained in both directions before the model; without effect if `links` is
    given."""
    symmetrization: Symmetrization = "grow-diag-final-and"
    """How the links of both directions are combined."""
    weight: PositiveFloat = 0.05
    """Factor of the loss beside the cross-entropy; both are means over target tokens."""
