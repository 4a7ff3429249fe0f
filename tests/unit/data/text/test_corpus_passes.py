"""Blocks of a corpus, their digests, and reservoir sampling."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text import corpus_passes
from heedful.data.text.corpus_passes import ReservoirSampler, ShardCounter, iter_blocks


class Numbers:
    def __init__(self, first, size):
        self.numbers = range(first, first + size)

    def stream(self):
        return map(str, self.numbers)

    def describe(self):
        return "numbers"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(corpus_passes, "CHUNK_SIZE", 3)


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3), shard_size=st.integers(1, 9))
def test_iter_blocks_covers_examples_without_mixing_sources(sizes, shard_size):
    sources = [Numbers(sum(sizes[:index]), size) for index, size in enumerate(sizes)]
    blocks = list(iter_blocks(sources, shard_size))
    texts = [text for block in blocks for text in block.examples]
    assert texts == list(map(str, range(sum(sizes))))
    assert all(block.examples[0] == str(block.first_row) for block in blocks)
    shards = [list(group) for _, group in groupby(blocks, key=lambda block: block.shard)]
    assert [group[0].shard for group in shards] == list(range(len(shards)))
    assert all(len({block.corpus_index for block in group}) == 1 for group in shards)
    assert all(sum(len(block.examples) for block in group) <= shard_size for group in shards)
    assert len(shards) == sum(-(-size // shard_size) for size in sizes)


def test_changed_text_changes_digest_of_the_shard_only():
    def digests(*texts):
        counter = ShardCounter()
        source = Numbers(0, 0)
        source.stream = lambda: iter(texts)
        for block in iter_blocks([source], 2):
            counter.add(block)
        assert counter.num_rows == len(texts)
        return [spec.digest for spec in counter.specs]

    one, other = digests("a", "b", "c", "d", "e"), digests("a", "b", "c", "D", "e")
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, True]


def test_reservoir_keeps_all_examples_below_size():
    reservoir = ReservoirSampler(5, seed=0)
    reservoir.add(0, "abc")
    reservoir.add(3, "d")
    assert reservoir.exclude_rows([1]) == ["a", "c", "d"]


def test_reservoir_samples_uniformly():
    counts = Counter()
    for seed in range(4000):
        reservoir = ReservoirSampler(3, seed=seed)
        for row in range(0, 12, 4):
            reservoir.add(row, range(row, row + 4))
        sample = reservoir.exclude_rows([])
        assert len(set(sample)) == 3
        assert sample == sorted(sample)
        counts.update(sample)
    expected = 4000 * 3 / 12
    squares = sum((counts[row] - expected) ** 2 / expected for row in range(12))
    assert squares < 31.3  # chi-square with 11 degrees of freedom, 1 in 1000
