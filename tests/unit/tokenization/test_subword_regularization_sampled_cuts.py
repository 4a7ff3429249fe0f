from collections import Counter
from itertools import combinations, pairwise
from math import exp

import numpy as np
import pytest
import sentencepiece

from heedful.tokenization.segments import SubwordPiece
from heedful.tokenization.subword import SubwordTokenizerConfig, UnigramSamplingConfig
from heedful.tokenization.subword_regularization import SubwordRegularizer, UnigramSampler
from tests.cuts import TOO_RARE, how_rare, keys, rows_of, sequences

NAMES = {"a": -1.0, "b": -2.0, "ab": -1.5, "ba": -3.0, "aba": -2.5, "bb": -2.2}
PIECES = {
    name: SubwordPiece(number, score) for number, (name, score) in enumerate(NAMES.items(), 10)
}
TEXTS = [f"the {one} sees a {other}" for one in ("dog", "doge", "god") for other in ("god", "egos")]
BYTE = 5


def ids_of(text):
    return [PIECES[character].id for character in text]


def all_cuts(text, pieces):
    """Every cut of a text into pieces, by trying all sets of places to cut at."""
    for count in range(len(text)):
        for places in combinations(range(1, len(text)), count):
            ends = (0, *places, len(text))
            names = [text[start:end] for start, end in pairwise(ends)]
            if all(name in pieces for name in names):
                yield tuple(names)


def distribution(text, pieces, alpha):
    """P(cut) ~ P(pieces)^alpha, by enumeration."""
    weights = {
        tuple(pieces[name].id for name in cut): exp(alpha * sum(pieces[name].score for name in cut))
        for cut in all_cuts(text, pieces)
    }
    return {cut: weight / sum(weights.values()) for cut, weight in weights.items()}


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("text", ["abab", "bbabb", "a"])
def test_segmentations_follow_smoothed_unigram_distribution(text, alpha):
    cuts = UnigramSampler(PIECES, alpha)
    counts = Counter(rows_of(cuts.segment(sequences(*[ids_of(text)] * 20_000), keys(20_000))))
    assert how_rare(counts, distribution(text, PIECES, alpha)) > TOO_RARE


def test_all_segmentations_are_sampled():
    stretches = sequences(*[ids_of("ababb")] * 20_000)
    found = UnigramSampler(PIECES, 0.1).segment(stretches, keys(20_000))
    assert set(rows_of(found)) == set(distribution("ababb", PIECES, 0.1))


def test_sampling_does_not_depend_on_input_segmentation():
    cuts = UnigramSampler(PIECES, 0.2)
    one = cuts.segment(sequences(*[ids_of("abab")] * 100), keys(100))
    other = cuts.segment(sequences(*[[PIECES["ab"].id, PIECES["ab"].id]] * 100), keys(100))
    assert rows_of(one) == rows_of(other)


def test_ids_outside_pieces_are_unchanged():
    found = UnigramSampler(PIECES, 0.2).segment(sequences([BYTE], ids_of("b")), keys(2))
    assert rows_of(found) == [(BYTE,), (PIECES["b"].id,)]


def test_clearing_cache_does_not_change_samples():
    """A rest gets another number each time it is met again: the draw must not know of it."""
    chance = np.random.default_rng(0)
    texts = ["".join(chance.choice(["a", "b"], size)) for size in chance.integers(1, 9, 200)]
    bounded, unbounded = UnigramSampler(PIECES, 0.2, max_cache_size=3), UnigramSampler(PIECES, 0.2)
    together = rows_of(unbounded.segment(sequences(*map(ids_of, texts)), keys(200)))
    for text, key, expected in reversed(list(zip(texts, keys(200), together, strict=True))):
        alone = bounded.segment(sequences(ids_of(text)), np.array([key]))
        assert rows_of(alone) == [expected]


# --- beside SentencePiece --------------------------------------------------------------------


def trained(alpha):
    config = SubwordTokenizerConfig(
        vocab_size=320, subword_regularization=UnigramSamplingConfig(alpha=alpha)
    )
    tokenizer = config.train(TEXTS)
    return tokenizer, config.build_regularizer(tokenizer)


def test_large_alpha_gives_most_likely_segmentation():
    tokenizer, recutter = trained(alpha=1e4)
    assert isinstance(recutter, SubwordRegularizer)
    rows = tokenizer.encode_batch([*TEXTS, "godog", "see the eggs"])
    found = recutter.resegment(sequences(*rows), keys(len(rows)))
    assert rows_of(found) == list(map(tuple, rows))


def test_segmentation_frequencies_match_sentencepiece():
    tokenizer, recutter = trained(alpha=0.3)
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    text, number = "the doge sees", 5000
    row = tokenizer.encode(text)
    ours = Counter(rows_of(recutter.resegment(sequences(*[row] * number), keys(number))))
    options = {"enable_sampling": True, "alpha": 0.3, "nbest_size": -1}
    theirs = Counter(tuple(processor.encode(text, **options)) for _ in range(number))
    assert len(ours) > 10
    apart = sum(abs(ours[cut] - theirs[cut]) for cut in ours | theirs) / (2 * number)
    # Two samples of the same law are apart by about sqrt(cuts / (pi * number)) at most.
    assert apart < 2 * np.sqrt(len(ours | theirs) / (np.pi * number))
