"""CIDEr-D as a reward: which references a row has, EOS, and words that cannot match."""

import numpy as np
import pytest
import torch

from heedful.data.text.batching import Batch, SourceBatch
from heedful.tokenization.ragged_array import RaggedArray
from heedful.tokenization.vocabulary import EOS, PAD, UNK
from heedful.training.guided_alignment import hash_rows
from heedful.training.rollouts import CiderDReward, ReferenceTable, Rollout, reference_keys
from tests.unit.evaluation.slow_cider_d import slow_cider_d

A, DOG, RUNS, CAT, SITS = range(4, 9)
CAPTIONS = [[[A, DOG, RUNS], [DOG, RUNS, A, DOG]], [[A, CAT, SITS], [CAT, UNK]]]
WITH_EOS = [[[*caption, EOS] for caption in captions] for captions in CAPTIONS]
IMAGES = [7, 3]


def text_batch(sources):
    tokens = torch.tensor(sources)
    return Batch(SourceBatch(tokens, torch.ones(len(tokens), dtype=torch.long)), tokens, tokens)


def image_batch(images):
    """A batch whose sources are pixels."""
    pixels, targets = torch.rand(len(images), 1, 2, 2), torch.full((len(images), 1), EOS)
    sources = SourceBatch(pixels, torch.full((len(images),), 4))
    return Batch(sources, targets, targets, reference_ids=torch.tensor(images))


def table(keys):
    rows = [(key, text) for key, texts in zip(keys, CAPTIONS, strict=True) for text in texts]
    targets = RaggedArray.from_sequences([text for _, text in rows])
    return ReferenceTable.from_rows(np.array([key for key, _ in rows], np.uint64), targets)


OUTPUTS = [
    [Rollout((A, CAT, SITS)), Rollout((A, CAT, SITS), is_truncated=True), Rollout((CAT, UNK))],
    [Rollout((DOG, RUNS)), Rollout(())],
    [Rollout((CAT,))],
]


def expected(groups):
    known = [[[-1 if token == UNK else token for token in o.targets] for o in r] for r in OUTPUTS]
    return [
        [slow_cider_d(WITH_EOS, output, group) for output in row]
        for row, group in zip(known, groups, strict=True)
    ]


def test_rewards_of_images_found_by_number():
    rewards = CiderDReward(table(IMAGES))(image_batch([3, 7, 3]), OUTPUTS)
    assert [pytest.approx(row) for row in expected([1, 0, 1])] == list(rewards)
    assert [len(row) for row in rewards] == [3, 2, 1]


def test_rewards_of_texts_found_by_source():
    sources = [[11, 12, EOS, PAD], [11, EOS, PAD, PAD]]
    keys = hash_rows(torch.tensor(sources))
    batch = text_batch([sources[1], sources[0], sources[1]])
    rewards = CiderDReward(table(keys))(batch, OUTPUTS)
    assert [pytest.approx(row) for row in expected([1, 0, 1])] == list(rewards)


def test_padding_does_not_change_the_key():
    short, long = text_batch([[11, EOS]]), text_batch([[11, EOS, PAD, PAD]])
    assert reference_keys(short) == reference_keys(long)


def test_missing_eos_and_unknown_words_not_rewarded():
    (complete, truncated, unknown), *_ = CiderDReward(table(IMAGES))(
        image_batch([3, 7, 3]), OUTPUTS
    )
    assert complete > truncated > 0
    # "CAT UNK" is a reference, of which an output can get the word "CAT" right and no pair.
    assert unknown == pytest.approx(slow_cider_d(WITH_EOS, [CAT, -1, EOS], 1))
    assert unknown < slow_cider_d(WITH_EOS, [CAT, UNK, EOS], 1)


def test_row_that_is_not_in_the_training_data_is_our_error():
    with pytest.raises(AssertionError, match="row 1 is not from the training data"):
        CiderDReward(table(IMAGES))(image_batch([3, 4]), OUTPUTS[:2])


def test_rewards_without_references_are_zero():
    assert CiderDReward()(image_batch([1, 2, 3]), OUTPUTS) == [[0, 0, 0], [0, 0], [0]]


def test_size_is_described():
    texts = [text for texts in WITH_EOS for text in texts]
    ngrams = {
        tuple(t[i : i + n]) for t in texts for n in range(1, 5) for i in range(len(t) - n + 1)
    }
    assert table(IMAGES).describe() == (
        f"document frequencies of {len(ngrams)} n-grams in 4 references of 2 sources"
    )
