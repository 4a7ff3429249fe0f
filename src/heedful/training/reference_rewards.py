"""CIDEr-D as the reward of sampled outputs, against all references of their source.

Rows of a batch find the references of their source in a table that is built once from the training
data. Invariant: the reward of an output is CIDEr-D of its tokens, EOS included, with the document
frequencies of the training references.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from heedful.data.text.batching import Batch
from heedful.evaluation.cider_d import CiderD
from heedful.tokenization.ragged_array import Integers, RaggedArray
from heedful.tokenization.vocabulary import EOS, UNK
from heedful.training.guided_alignment import hash_rows
from heedful.training.rollouts import Rollout

_NO_WORD = -1  # an unknown word of an output equals no word of a reference


def reference_keys(batch: Batch) -> NDArray[np.uint64]:
    """Return the key of each row: rows with equal keys have the same references.

    It is the example that the batch names, or else a hash of the source tokens.
    """
    if batch.reference_ids is not None:
        return batch.reference_ids.cpu().numpy().astype(np.uint64)
    return hash_rows(batch.sources.tokens)


class ReferenceTable(NamedTuple):
    """The references of training sources, by the key of the source."""

    keys: NDArray[np.uint64]  # sorted; that of each group of references
    scorer: CiderD
    num_references: int

    @classmethod
    def from_rows(cls, keys: NDArray[np.uint64], targets: RaggedArray) -> Self:
        """Group the targets of rows, which have no EOS, by their keys."""
        unique_keys, groups = np.unique(keys, return_inverse=True)
        with_eos = [[*targets.get(row), EOS] for row in range(len(targets))]
        return cls(unique_keys, CiderD(RaggedArray.from_sequences(with_eos), groups), len(with_eos))

    def describe(self) -> str:
        """Return its size as the log of training shows it."""
        return (
            f"document frequencies of {self.scorer.num_ngrams:,} n-grams in "
            f"{self.num_references:,} references of {self.scorer.num_groups:,} sources"
        )

    def groups_of(self, batch: Batch) -> Integers:
        """Return the group of each row."""
        keys = reference_keys(batch)
        groups = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        unknown = np.flatnonzero(self.keys[groups] != keys)
        assert not len(unknown), f"row {unknown[0]} is not from the training data"
        return groups


@dataclass
class CiderDReward:
    """CIDEr-D, from 0 to 10, with EOS as a word  (Rennie et al. 2017).

    Without it, outputs that end in "with a" gain reward. Truncated outputs have none. Before there
    are references, while the memory of a step is measured, all rewards are 0.
    """

    references: ReferenceTable | None = None

    def __call__(
        self, batch: Batch, outputs: Sequence[Sequence[Rollout]]
    ) -> Sequence[Sequence[float]]:
        """Return the reward of each output of each row of a batch."""
        if self.references is None:
            return [[0.0] * len(row) for row in outputs]
        sizes = [len(row) for row in outputs]
        tokens = RaggedArray.from_sequences(output.targets for row in outputs for output in row)
        tokens.values[tokens.values == UNK] = _NO_WORD
        groups = np.repeat(self.references.groups_of(batch), sizes)
        scores = iter(self.references.scorer.score(tokens, groups).tolist())
        return [[next(scores) for _ in row] for row in outputs]
