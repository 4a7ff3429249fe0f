"""Tokens read from shards equal the tokens written, however they are divided."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.text.example_formats import TokenizedChunk
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.data.text.sharded_dataset import (
    METADATA_KEY,
    ShardedPairDataset,
    ShardedTokenStream,
    open_shard,
    write_shard,
)
from heedful.storage.manifest import read_and_verify_manifest
from heedful.tokenization.ragged_array import RaggedArray

ids = st.lists(st.integers(0, 70_000), max_size=5)
pairs_in_shards = st.lists(st.lists(st.tuples(ids, ids), max_size=4), min_size=1, max_size=4)


def chunk_of(texts, dtype=np.uint32):
    array = RaggedArray.from_sequences(texts)
    return TokenizedChunk(array.values.astype(dtype), array.lengths, {"lines": len(array)})


def write_and_open(folder, chunks, prefix=()):
    write_shard(folder, chunks, {"corpus_index": 0}, prefix)
    return open_shard(folder, read_and_verify_manifest(folder)[METADATA_KEY])


@settings(max_examples=15)  # each calls fsync several times
@given(shards=pairs_in_shards, data=st.data())
def test_sharded_pairs_equal_in_memory_pairs(shards, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    opened = [
        write_and_open(folder / str(index), [chunk_of([text for pair in shard for text in pair])])
        for index, shard in enumerate(shards)
    ]
    pairs = [pair for shard in shards for pair in shard]
    in_files = ShardedPairDataset(opened)
    in_memory = InMemoryPairDataset(
        *(RaggedArray.from_sequences(pair[side] for pair in pairs) for side in (0, 1))
    )
    assert len(in_files) == len(in_memory) == len(pairs)
    assert in_files.for_epoch(7) is in_files
    if pairs:
        rows = np.array(data.draw(st.lists(st.integers(0, len(pairs) - 1), max_size=9)), dtype=int)
        for one, other in zip(in_files.select(rows), in_memory.select(rows), strict=True):
            assert one.values.tolist() == other.values.tolist()
            assert one.offsets.tolist() == other.offsets.tolist()
        for one, other in zip(
            in_files.sequence_lengths(rows),
            in_memory.sequence_lengths(rows),
            strict=True,
        ):
            assert one.tolist() == other.tolist()


@settings(max_examples=15)
@given(shards=st.lists(st.lists(ids, max_size=3), min_size=1, max_size=4), data=st.data())
def test_sharded_token_stream_equals_in_memory_tokens(shards, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    opened = [
        write_and_open(folder / str(index), [chunk_of(texts)], prefix=[] if index else [3])
        for index, texts in enumerate(shards)
    ]
    row = np.array([3, *(token for texts in shards for text in texts for token in text)])
    in_files = ShardedTokenStream(opened)
    assert len(in_files) == len(row)
    positions = np.array(data.draw(st.lists(st.integers(0, len(row) - 1), min_size=2, max_size=8)))
    positions = positions[: len(positions) // 2 * 2].reshape(-1, 2)
    assert in_files[positions].tolist() == row[positions].tolist()
    assert in_files[1:-1].tolist() == row[1:-1].tolist()


def test_small_vocabulary_is_stored_in_two_bytes(tmp_path):
    chunks = [chunk_of([[65_535, 4], [5]], np.uint16), chunk_of([[], [6]], np.uint16)]
    shard = write_and_open(tmp_path / "shard", chunks)
    assert (shard.values.dtype, shard.offsets.dtype) == (np.uint16, np.uint32)
    assert shard.values.tolist() == [65_535, 4, 5, 6]
    assert shard.offsets.tolist() == [0, 2, 3, 3, 4]
    # 4 tokens of 2 bytes, and 5 offsets of 4.
    assert (tmp_path / "shard" / "tokens.bin").stat().st_size == 8 + 20


def test_shard_is_written_atomically(tmp_path):
    def interrupted():
        yield chunk_of([[4]])
        raise KeyboardInterrupt

    try:
        write_shard(tmp_path / "shard", interrupted(), {"corpus_index": 0}, ())
    except KeyboardInterrupt:
        assert list(tmp_path.iterdir()) == []
