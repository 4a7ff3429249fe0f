"""Sampling from a unigram model follows its smoothed distribution."""

from collections import Counter
from itertools import combinations, pairwise
from math import exp

import numpy as np
import pytest
import sentencepiece

from heedful.tokenization.subword import SubwordTokenizerConfig, UnigramSamplingConfig
from heedful.tokenization.subword_regularization import (
    SubwordPiece,
    SubwordRegularizer,
    UnigramSampler,
)
from tests.segmentation import MIN_P_VALUE, keys, p_value, rows_of, sequences

NAMES = {"a": -1.0, "b": -2.0, "ab": -1.5, "ba": -3.0, "aba": -2.5, "bb": -2.2}
PIECES = {name: SubwordPiece(index, score) for index, (name, score) in enumerate(NAMES.items(), 10)}
TEXTS = [f"the {one} sees a {other}" for one in ("dog", "doge", "god") for other in ("god", "egos")]
BYTE = 5


def ids_of(text):
    return [PIECES[character].id for character in text]


def all_segmentations(text, pieces):
    """Enumerate the segmentations of a text into pieces."""
    for count in range(len(text)):
        for splits in combinations(range(1, len(text)), count):
            ends = (0, *splits, len(text))
            names = [text[start:end] for start, end in pairwise(ends)]
            if all(name in pieces for name in names):
                yield tuple(names)


def distribution(text, pieces, alpha):
    """P(segmentation) ~ P(pieces)^alpha, by enumeration."""
    weights = {
        tuple(pieces[name].id for name in segmentation): exp(
            alpha * sum(pieces[name].score for name in segmentation)
        )
        for segmentation in all_segmentations(text, pieces)
    }
    return {
        segmentation: weight / sum(weights.values()) for segmentation, weight in weights.items()
    }


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("text", ["abab", "bbabb", "a"])
def test_segmentations_follow_smoothed_unigram_distribution(text, alpha):
    sampler = UnigramSampler(PIECES, alpha)
    counts = Counter(rows_of(sampler.segment(sequences(*[ids_of(text)] * 20_000), keys(20_000))))
    assert p_value(counts, distribution(text, PIECES, alpha)) > MIN_P_VALUE


def test_all_segmentations_sampled():
    spans = sequences(*[ids_of("ababb")] * 20_000)
    segmented = UnigramSampler(PIECES, 0.1).segment(spans, keys(20_000))
    assert set(rows_of(segmented)) == set(distribution("ababb", PIECES, 0.1))


def test_sampling_does_not_depend_on_input_segmentation():
    sampler = UnigramSampler(PIECES, 0.2)
    first = sampler.segment(sequences(*[ids_of("abab")] * 100), keys(100))
    second = sampler.segment(sequences(*[[PIECES["ab"].id, PIECES["ab"].id]] * 100), keys(100))
    assert rows_of(first) == rows_of(second)


def test_ids_outside_pieces_unchanged():
    segmented = UnigramSampler(PIECES, 0.2).segment(sequences([BYTE], ids_of("b")), keys(2))
    assert rows_of(segmented) == [(BYTE,), (PIECES["b"].id,)]


def test_clearing_cache_does_not_change_samples():
    """A suffix gets another index when it is cached again: samples must not depend on it."""
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(["a", "b"], size)) for size in random.integers(1, 9, 200)]
    bounded, unbounded = UnigramSampler(PIECES, 0.2, max_cache_size=3), UnigramSampler(PIECES, 0.2)
    together = rows_of(unbounded.segment(sequences(*map(ids_of, texts)), keys(200)))
    for text, key, expected in reversed(list(zip(texts, keys(200), together, strict=True))):
        alone = bounded.segment(sequences(ids_of(text)), np.array([key]))
        assert rows_of(alone) == [expected]


# ----- comparison with SentencePiece


def trained(alpha):
    config = SubwordTokenizerConfig(
        vocab_size=320, subword_regularization=UnigramSamplingConfig(alpha=alpha)
    )
    tokenizer = config.train(TEXTS)
    return tokenizer, config.build_regularizer(tokenizer)


def test_large_alpha_returns_most_likely_segmentation():
    tokenizer, regularizer = trained(alpha=1e4)
    assert isinstance(regularizer, SubwordRegularizer)
    rows = tokenizer.encode_batch([*TEXTS, "godog", "see the eggs"])
    segmented = regularizer.resegment(sequences(*rows), keys(len(rows)))
    assert rows_of(segmented) == list(map(tuple, rows))


def test_segmentation_frequencies_match_sentencepiece():
    tokenizer, regularizer = trained(alpha=0.3)
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    text, count = "the doge sees", 5000
    row = tokenizer.encode(text)
    ours = Counter(rows_of(regularizer.resegment(sequences(*[row] * count), keys(count))))
    options = {"enable_sampling": True, "alpha": 0.3, "nbest_size": -1}
    theirs = Counter(tuple(processor.encode(text, **options)) for _ in range(count))
    assert len(ours) > 10
    distance = sum(
        abs(ours[segmentation] - theirs[segmentation]) for segmentation in ours | theirs
    ) / (2 * count)
    # Two samples of one distribution differ by about sqrt(segmentations / (pi * count)) at most.
    assert distance < 2 * np.sqrt(len(ours | theirs) / (np.pi * count))
