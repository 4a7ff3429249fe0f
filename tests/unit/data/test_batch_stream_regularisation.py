from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.batch_stream import (
    BatchStream,
    DataCursor,
    ResegmentedDataset,
    tokenize_pairs_in_memory,
)
from heedful.data.batching import BatchingConfig, epoch_batches
from heedful.data.filtering import FilterConfig
from heedful.data.mixing import MixedDataset
from heedful.data.pair_dataset import Pair
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
TOKENIZER_FOLDER = SeparateTokenizersConfig(
    source=SubwordTokenizerConfig(
        vocab_size=330, subword_regularization=UnigramSamplingConfig(alpha=0.1)
    ),
    target=SubwordTokenizerConfig(
        vocab_size=340, model_type="bpe", subword_regularization=BPEDropoutConfig(dropout=0.4)
    ),
)
TOKENIZERS = TOKENIZER_FOLDER.train(*zip(*PAIRS, strict=True))
RECUTTERS = TOKENIZER_FOLDER.build_regularizers(TOKENIZERS)
STORE, _ = tokenize_pairs_in_memory(PAIRS, TOKENIZERS, FilterConfig(), location="here")
BATCHING = BatchingConfig(max_tokens=120, bucket_size=25)
ALL = np.arange(len(STORE))


def recut(store=STORE, recutters=RECUTTERS, *, seed=1, epoch=0):
    return ResegmentedDataset(store, recutters, seed=seed).for_epoch(epoch)


def rows_of(pairs):
    return [(pairs.source.get(row), pairs.target.get(row)) for row in range(len(pairs.source))]


def test_resegmentation_keeps_text_of_both_sides():
    found = recut().select(ALL)
    for (source, target), pair in zip(rows_of(found), PAIRS, strict=True):
        assert TOKENIZERS.source.decode(source) == pair.source
        assert TOKENIZERS.target.decode(target) == pair.target
    for new, old in zip(found, STORE, strict=True):
        assert len(new.values) > len(old.values)


def test_resegmentation_varies_with_epoch_seed_and_side():
    first = rows_of(recut().select(ALL))
    assert rows_of(recut().select(ALL)) == first
    assert rows_of(recut(epoch=1).select(ALL)) != first
    assert rows_of(recut(seed=2).select(ALL)) != first
    shared = SharedTokenizerConfig(tokenizer=TOKENIZER_FOLDER.source)
    text = shared.train([pair.target for pair in PAIRS], [])
    store, _ = tokenize_pairs_in_memory(
        [Pair(pair.target, pair.target) for pair in PAIRS], text, FilterConfig(), location="here"
    )
    both = rows_of(recut(store, shared.build_regularizers(text)).select(ALL))
    assert any(source != target for source, target in both)


@given(rows=st.lists(st.integers(0, len(PAIRS) - 1), max_size=20), epoch=st.integers(0, 5))
@settings(max_examples=15)
def test_resegmented_row_does_not_depend_on_other_rows_or_cache(rows, epoch):
    rows = np.array(rows, dtype=np.int64)
    together = recut(epoch=epoch)
    lengths = together.sequence_lengths(rows)
    taken = rows_of(together.select(rows))
    assert [(len(source), len(target)) for source, target in taken] == list(
        zip(*map(np.ndarray.tolist, lengths), strict=True)
    )
    for row, pair in zip(rows, taken, strict=True):
        assert rows_of(recut(epoch=epoch).select(np.array([row]))) == [pair]
    assert rows_of(together.select(ALL[:3])) == rows_of(recut(epoch=epoch).select(ALL[:3]))


@pytest.mark.parametrize("side", [0, 1])
def test_side_without_regularizer_is_unchanged(side):
    kept = [None if number == side else each for number, each in enumerate(RECUTTERS)]
    found = recut(recutters=RegularizerPair(*kept)).select(ALL)
    assert np.array_equal(found[side].values, STORE[side].values)
    assert not np.array_equal(found[1 - side].offsets, STORE[1 - side].offsets)


def test_resegmented_batches_respect_max_tokens():
    for epoch in range(3):
        store = recut(epoch=epoch)
        shapes = [placed.spec for placed in epoch_batches(store, BATCHING, seed=1, epoch=epoch)]
        assert sorted(np.concatenate([shape.rows for shape in shapes])) == list(ALL)
        for shape in shapes:
            source, target = store.select(shape.rows)
            assert shape.num_tokens <= BATCHING.max_tokens
            assert source.lengths.max() < shape.source_length
            assert target.lengths.max() < shape.target_length


def stream(position):
    return BatchStream(
        ResegmentedDataset(STORE, RECUTTERS, seed=1), BATCHING, seed=1, cursor=position
    )


@given(taken=st.integers(0, 40))
@settings(max_examples=8)
def test_batch_stream_resumes_from_any_cursor(taken):
    batches = list(islice(stream(DataCursor(0, 0)), taken + 4))
    begun = stream(DataCursor(0, 0))
    for _ in islice(begun, taken):
        pass
    for one, other in zip(batches[taken:], islice(stream(begun.cursor), 4), strict=True):
        assert torch.equal(one.sources.tokens, other.sources.tokens)
        assert torch.equal(one.targets, other.targets)


def test_repeated_pair_is_segmented_independently():
    store = recut(MixedDataset([STORE], [2.0], seed=1))
    assert len(store) == 2 * len(STORE)
    found = rows_of(store.select(np.arange(len(store))))
    ways = {}
    for source, target in found:
        text = TOKENIZERS.source.decode(source), TOKENIZERS.target.decode(target)
        ways.setdefault(text, []).append((source, target))
    assert any(one != other for one, other in ways.values())


def test_large_selection_matches_small_ones(monkeypatch):
    at_once = rows_of(recut().select(ALL))
    monkeypatch.setattr("heedful.data.batch_stream._ROWS_PER_BATCH", 7)
    assert rows_of(recut().select(ALL)) == at_once


def test_tokenizers_without_regularization_have_no_regularizers():
    text = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=SubwordTokenizerConfig(vocab_size=330)
    )
    assert text.build_regularizers(text.train(*zip(*PAIRS, strict=True))) == (None, None)
