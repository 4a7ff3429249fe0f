"""The hidden Markov alignment model: a link depends on the distance from the one before.

(Vogel et al. 1996; null words as in Och and Ney 2003, section 2.2.)
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from heedful.aligners.corpus import AlignmentBatch, Floats, TranslationTable
from heedful.aligners.models import Expectation, WordAligner
from heedful.tokenization.ragged_array import Integers

_NUM_JUMP_UPDATES = 10
_MIN_JUMP = 1e-12  # of c, which would have no sum if all jumps from a position were impossible


class HMMAligner(WordAligner):
    """p(i | i') = (1 - p0) (u / S + (1 - u) c(i - i') / sum_k c(k - i')), p(null | i') = p0.

    A null word keeps the position i' for the next one; the first comes from position 0. The share u
    of uniform jumps is fixed. Vogel et al. set c to expected counts, by which the likelihood may
    fall; here c follows the minorization-maximization of Hunter (2004, equation 3), which also
    counts how often a jump was possible.
    """

    def __init__(
        self,
        table: TranslationTable,
        *,
        max_length: int,
        null_prob: float = 0.2,
        uniform_jump_prob: float = 0.1,
        alpha: float | None = None,
    ) -> None:
        super().__init__(table, alpha=alpha)
        self.max_length = max_length  # of a source in training
        self.null_prob = null_prob
        self.uniform_jump_prob = uniform_jump_prob
        self.jumps = np.ones(2 * max_length)  # c(1 - max_length ... max_length)

    def _jump_index(self, length: int) -> Integers:
        """Return the entries of c for jumps from 0 ... S to 1 ... S, (S + 1, S)."""
        distances = np.arange(1, length + 1) - np.arange(length + 1)[:, None]
        return np.clip(distances, 1 - self.max_length, self.max_length) + self.max_length - 1

    def _learned_jumps(self, length: int) -> Floats:
        jumps = self.jumps[self._jump_index(length)]
        return jumps / jumps.sum(axis=-1, keepdims=True)

    def jump_probs(self, length: int) -> Floats:
        """Return p(i | i') without null, (S + 1, S)."""
        learned = (1 - self.uniform_jump_prob) * self._learned_jumps(length)
        return self.uniform_jump_prob / length + learned

    @override
    def expect(self, batch: AlignmentBatch) -> Expectation:
        """Run forward and backward over the target; states are positions 0 ... S.

        After each word, a position has the mass of its own link and of null words since.
        """
        emissions = self.table.probs[batch.cells]
        num_rows, num_steps, num_states = emissions.shape
        length, null_prob = num_states - 1, self.null_prob
        jumps = self.jump_probs(length)
        is_real = np.arange(num_steps) < batch.target_lengths[:, None]
        scales = np.ones((num_rows, num_steps))
        masses = np.zeros((num_steps + 1, num_rows, num_states))  # before each word, and at the end
        masses[0, :, 0] = 1
        links = np.zeros((num_rows, num_steps, num_states))  # forward; null summed over positions
        null_masses = np.zeros((num_steps, num_rows, num_states))
        for step in range(num_steps):
            before, emission, is_open = masses[step], emissions[:, step], is_real[:, step]
            null = null_prob * before * emission[:, :1]
            words = (1 - null_prob) * (before @ jumps) * emission[:, 1:]
            scale = np.where(is_open, null.sum(axis=-1) + words.sum(axis=-1), 1.0)
            scales[:, step] = scale
            null_masses[step] = null / scale[:, None]
            links[:, step, 1:] = words / scale[:, None]
            after = null_masses[step].copy()
            after[:, 1:] += links[:, step, 1:]
            masses[step + 1] = np.where(is_open[:, None], after, before)
        future = np.ones((num_rows, num_states))
        pair_counts = np.zeros_like(jumps)
        for step in reversed(range(num_steps)):
            emission, is_open = emissions[:, step], is_real[:, step, None]
            scaled = emission / scales[:, step, None]
            links[:, step, 0] = (null_masses[step] * future).sum(axis=-1)
            links[:, step, 1:] *= future[:, 1:]
            words = np.where(is_open, (1 - null_prob) * scaled[:, 1:] * future[:, 1:], 0)
            pair_counts += masses[step].T @ words
            earlier = null_prob * scaled[:, :1] * future + words @ jumps.T
            future = np.where(is_open, earlier, future)
        posteriors = np.where(is_real[..., None], links, 0)
        return Expectation(posteriors, float(np.log(scales).sum()), (length, pair_counts * jumps))

    @override
    def update_prior(self, statistics: Sequence[Any]) -> None:
        counts: dict[int, Floats] = defaultdict(lambda: np.zeros(()))
        for length, pair_counts in statistics:
            counts[length] = counts[length] + pair_counts
        totals = np.zeros_like(self.jumps)
        from_learned = {}
        for length, pair_counts in counts.items():
            learned = (1 - self.uniform_jump_prob) * self._learned_jumps(length)
            expected = pair_counts * learned / self.jump_probs(length)
            from_learned[length] = expected.sum(axis=-1, keepdims=True)  # (S + 1, 1)
            totals += self._sum_jumps(length, expected)
        for _ in range(_NUM_JUMP_UPDATES):
            chances = np.zeros_like(self.jumps)
            for length, mass in from_learned.items():
                jumps = self.jumps[self._jump_index(length)]
                rates = mass / jumps.sum(axis=-1, keepdims=True)
                chances += self._sum_jumps(length, np.broadcast_to(rates, jumps.shape))
            is_possible = chances > 0  # other jumps keep their value
            updated = totals / np.where(is_possible, chances, 1)
            self.jumps = np.where(is_possible, np.maximum(updated, _MIN_JUMP), self.jumps)

    def _sum_jumps(self, length: int, values: Floats) -> Floats:
        index = self._jump_index(length)
        sums = np.bincount(index.ravel(), weights=values.ravel(), minlength=len(self.jumps))
        return sums.astype(np.float64, copy=False)
