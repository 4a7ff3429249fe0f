"""Measures of translation: what does sacreBLEU say of outputs?

BLEU, chrF and TER are sacreBLEU's and carry its signatures, without which such numbers cannot be
compared. Beside them stands the BLEU of papers older than signatures: lower-cased, over tokens,
without smoothing, as multi-bleu.perl -lc counts. Its tokens are those of mteval-v13a (13a), or
what white space parts in texts that are tokens already; Moses' own tokenizer cuts some words
otherwise. Law: the score of all sentences is the number sacreBLEU gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import numpy as np
from sacrebleu.metrics import bleu, chrf, ter
from sacrebleu.metrics.base import Metric as SacreMetric

from heedful.evaluation.measures import Array, Direction, paired


@dataclass(frozen=True)
class Sacre:
    """A metric of sacreBLEU, taken apart into sentences by the means of its own tests."""

    name: str
    make: Callable[[], SacreMetric]
    better: Direction = "higher"

    def statistics(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Array:
        """What sacreBLEU counts in each sentence."""
        pairs = list(paired(outputs, references))
        columns = list(zip_longest(*(choices for _, choices in pairs)))
        counted = self.make()._extract_corpus_statistics(list(outputs), columns)
        return np.array(counted, dtype=np.float64)

    def total(self, sums: Array) -> Array:
        """What sacreBLEU makes of the sums."""
        metric, rows = self.make(), sums.reshape(-1, sums.shape[-1]).tolist()
        scores = [metric._compute_score_from_stats(row).score for row in rows]
        return np.array(scores, dtype=np.float64).reshape(sums.shape[:-1])

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """SacreBLEU's own."""
        metric, counts = self.make(), {len(choices) for choices in references}
        metric.num_refs = counts.pop() if len(counts) == 1 else -1
        return str(metric.get_signature())


_old = partial(bleu.BLEU, lowercase=True, smooth_method="none", force=True)

BLEU = Sacre("BLEU", bleu.BLEU)
"""Papineni et al. 2002; of several references the nearest in length counts for brevity."""
CHRF = Sacre("chrF", chrf.CHRF)
"""F-score of character n-grams (Popovic 2015); of several references the best."""
TER = Sacre("TER", ter.TER, better="lower")
"""Edits and shifts per word of the references (Snover et al. 2006); the fewest over all of them."""
TOKENISED_BLEU = Sacre("tokenised BLEU", partial(_old, tokenize="13a"))
"""Lower-cased BLEU over tokens of mteval-v13a, not smoothed."""
MULTI_BLEU = Sacre("multi-BLEU", partial(_old, tokenize="none"))
"""Lower-cased BLEU over what white space parts, not smoothed: multi-bleu.perl -lc."""
