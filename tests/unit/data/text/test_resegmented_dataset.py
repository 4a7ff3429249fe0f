"""Subword regularization of datasets: same text, a segmentation that follows from its key."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.shuffling import DataCursor
from heedful.data.text.batching import BatchingConfig, BatchStream, epoch_batches
from heedful.data.text.example_formats import ExampleSource, tokenize_corpora
from heedful.data.text.filtering import FilterConfig
from heedful.data.text.pair_dataset import MixedDataset, Pair, ResegmentedDataset
from heedful.tokenization.subword import (
    BPEDropoutConfig,
    SubwordTokenizerConfig,
    UnigramSamplingConfig,
)
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import (
    RegularizerPair,
    SeparateTokenizersConfig,
    SharedTokenizerConfig,
)

WORDS = ["garden", "lion", "window", "horse", "mountain", "bird", "wolf", "mouse"]
PAIRS = [
    Pair(" ".join(WORDS[number % 7 : number % 7 + 1 + number % 3]), f"{one} sees {other}")
    for number, (one, other) in enumerate((one, other) for one in WORDS for other in WORDS)
]
CONFIG = SeparateTokenizersConfig(
    source=SubwordTokenizerConfig(
        vocab_size=330, subword_regularization=UnigramSamplingConfig(alpha=0.1)
    ),
    target=SubwordTokenizerConfig(
        vocab_size=340, model_type="bpe", subword_regularization=BPEDropoutConfig(dropout=0.4)
    ),
)
TOKENIZERS = CONFIG.train(*zip(*PAIRS, strict=True))
REGULARIZERS = CONFIG.build_regularizers(TOKENIZERS)
(DATASET,), _ = tokenize_corpora(
    [ExampleSource(PAIRS, str)], TOKENIZERS, FilterConfig(), location="here"
)
BATCHING = BatchingConfig(max_tokens=120, bucket_size=25)
ALL = np.arange(len(DATASET))


def resegmented(dataset=DATASET, regularizers=REGULARIZERS, *, seed=1, epoch=0):
    return ResegmentedDataset(dataset, regularizers, seed=seed).for_epoch(epoch)


def rows_of(pairs):
    return [(pairs.source.get(row), pairs.target.get(row)) for row in range(len(pairs.source))]


def test_resegmentation_keeps_text_of_both_sides():
    selected = resegmented().select(ALL)
    for (source, target), pair in zip(rows_of(selected), PAIRS, strict=True):
        assert TOKENIZERS.source.decode(source) == pair.source
        assert TOKENIZERS.target.decode(target) == pair.target
    for new, old in zip(selected, DATASET, strict=True):
        assert len(new.values) > len(old.values)


def test_resegmentation_varies_with_epoch_seed_and_side():
    first = rows_of(resegmented().select(ALL))
    assert rows_of(resegmented().select(ALL)) == first
    assert rows_of(resegmented(epoch=1).select(ALL)) != first
    assert rows_of(resegmented(seed=2).select(ALL)) != first
    shared = SharedTokenizerConfig(tokenizer=CONFIG.source)
    tokenizers = shared.train([pair.target for pair in PAIRS], [])
    copies = [Pair(pair.target, pair.target) for pair in PAIRS]
    (dataset,), _ = tokenize_corpora(
        [ExampleSource(copies, str)], tokenizers, FilterConfig(), location="here"
    )
    both = rows_of(resegmented(dataset, shared.build_regularizers(tokenizers)).select(ALL))
    assert any(source != target for source, target in both)


@given(rows=st.lists(st.integers(0, len(PAIRS) - 1), max_size=20), epoch=st.integers(0, 5))
@settings(max_examples=15)
def test_resegmented_row_does_not_depend_on_other_rows_or_cache(rows, epoch):
    rows = np.array(rows, dtype=np.int64)
    together = resegmented(epoch=epoch)
    lengths = together.sequence_lengths(rows)
    selected = rows_of(together.select(rows))
    assert [(len(source), len(target)) for source, target in selected] == list(
        zip(*map(np.ndarray.tolist, lengths), strict=True)
    )
    for row, pair in zip(rows, selected, strict=True):
        assert rows_of(resegmented(epoch=epoch).select(np.array([row]))) == [pair]
    assert rows_of(together.select(ALL[:3])) == rows_of(resegmented(epoch=epoch).select(ALL[:3]))


@pytest.mark.parametrize("side", [0, 1])
def test_side_without_regularizer_is_unchanged(side):
    regularizers = [
        None if index == side else regularizer for index, regularizer in enumerate(REGULARIZERS)
    ]
    selected = resegmented(regularizers=RegularizerPair(*regularizers)).select(ALL)
    assert np.array_equal(selected[side].values, DATASET[side].values)
    assert not np.array_equal(selected[1 - side].offsets, DATASET[1 - side].offsets)


def test_resegmented_batches_respect_max_tokens():
    for epoch in range(3):
        dataset = resegmented(epoch=epoch)
        specs = [indexed.spec for indexed in epoch_batches(dataset, BATCHING, seed=1, epoch=epoch)]
        assert sorted(np.concatenate([spec.rows for spec in specs])) == list(ALL)
        for spec in specs:
            source, target = dataset.select(spec.rows)
            assert spec.num_tokens <= BATCHING.max_tokens
            assert source.lengths.max() < spec.source_length
            assert target.lengths.max() < spec.target_length


def stream(cursor):
    return BatchStream(
        ResegmentedDataset(DATASET, REGULARIZERS, seed=1), BATCHING, seed=1, cursor=cursor
    )


@given(num_used=st.integers(0, 40))
@settings(max_examples=8)
def test_resegmented_batch_stream_resumes_from_any_cursor(num_used):
    batches = list(islice(stream(DataCursor(0, 0)), num_used + 4))
    interrupted = stream(DataCursor(0, 0))
    for _ in islice(interrupted, num_used):
        pass
    for one, other in zip(batches[num_used:], islice(stream(interrupted.cursor), 4), strict=True):
        assert torch.equal(one.sources.tokens, other.sources.tokens)
        assert torch.equal(one.targets, other.targets)


def test_repeated_pair_is_segmented_independently():
    dataset = resegmented(MixedDataset([DATASET], [2.0], seed=1))
    assert len(dataset) == 2 * len(DATASET)
    rows = rows_of(dataset.select(np.arange(len(dataset))))
    segmentations = {}
    for source, target in rows:
        text = TOKENIZERS.source.decode(source), TOKENIZERS.target.decode(target)
        segmentations.setdefault(text, []).append((source, target))
    assert any(one != other for one, other in segmentations.values())


def test_large_selection_same_as_small_ones(monkeypatch):
    at_once = rows_of(resegmented().select(ALL))
    monkeypatch.setattr("heedful.data.text.pair_dataset._ROWS_PER_CALL", 7)
    assert rows_of(resegmented().select(ALL)) == at_once


def test_tokenizers_without_regularization_have_no_regularizers():
    config = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=SubwordTokenizerConfig(vocab_size=330)
    )
    assert config.build_regularizers(config.train(*zip(*PAIRS, strict=True))) == (None, None)
