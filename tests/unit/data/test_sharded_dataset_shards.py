"""What is read from files is what was put into them, however it was parted."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.chunk_tokenizer import TokenizedChunk
from heedful.data.pair_dataset import InMemoryPairDataset, RaggedArray
from heedful.data.sharded_dataset import (
    METADATA_KEY,
    ShardedPairDataset,
    ShardedTokenStream,
    open_shard,
    write_shard,
)
from heedful.storage import read_and_verify_manifest

ids = st.lists(st.integers(0, 70_000), max_size=5)
pairs_in_shards = st.lists(st.lists(st.tuples(ids, ids), max_size=4), min_size=1, max_size=4)


def cut(texts, kind=np.uint32):
    packed = RaggedArray.from_sequences(texts)
    return TokenizedChunk(packed.values.astype(kind), packed.lengths, {"lines": len(packed)})


def written(folder, chunks, **options):
    write_shard(folder, chunks, {"part": 0}, **options)
    return open_shard(folder, read_and_verify_manifest(folder)[METADATA_KEY])


@settings(max_examples=15)  # each forces several files to the disk
@given(shards=pairs_in_shards, data=st.data())
def test_sharded_pairs_equal_in_memory_pairs(shards, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    opened = [
        written(folder / str(number), [cut([text for pair in pairs for text in pair])])
        for number, pairs in enumerate(shards)
    ]
    whole = [pair for pairs in shards for pair in pairs]
    in_files = ShardedPairDataset(opened)
    max_in_memory_examples = InMemoryPairDataset(
        *(RaggedArray.from_sequences(pair[side] for pair in whole) for side in (0, 1))
    )
    assert len(in_files) == len(max_in_memory_examples) == len(whole)
    assert in_files.for_epoch(7) is in_files
    if whole:
        rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=9)), dtype=int)
        for one, other in zip(
            in_files.select(rows), max_in_memory_examples.select(rows), strict=True
        ):
            assert one.values.tolist() == other.values.tolist()
            assert one.offsets.tolist() == other.offsets.tolist()
        for one, other in zip(
            in_files.sequence_lengths(rows),
            max_in_memory_examples.sequence_lengths(rows),
            strict=True,
        ):
            assert one.tolist() == other.tolist()


@settings(max_examples=15)
@given(shards=st.lists(st.lists(ids, max_size=3), min_size=1, max_size=4), data=st.data())
def test_sharded_token_stream_equals_in_memory_tokens(shards, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    opened = [
        written(folder / str(number), [cut(texts)], prefix=[] if number else [3])
        for number, texts in enumerate(shards)
    ]
    row = np.array([3, *(token for texts in shards for text in texts for token in text)])
    in_files = ShardedTokenStream(opened)
    assert len(in_files) == len(row)
    places = np.array(data.draw(st.lists(st.integers(0, len(row) - 1), min_size=2, max_size=8)))
    places = places[: len(places) // 2 * 2].reshape(-1, 2)
    assert in_files[places].tolist() == row[places].tolist()
    assert in_files[1:-1].tolist() == row[1:-1].tolist()


def test_small_vocabulary_is_stored_in_two_bytes(tmp_path):
    chunks = [cut([[65_535, 4], [5]], np.uint16), cut([[], [6]], np.uint16)]
    shard = written(tmp_path / "shard", chunks)
    assert (shard.values.dtype, shard.offsets.dtype) == (np.uint16, np.uint32)
    assert shard.values.tolist() == [65_535, 4, 5, 6]
    assert shard.offsets.tolist() == [0, 2, 3, 3, 4]
    # 4 tokens of 2 bytes, and 5 beginnings of 4.
    assert (tmp_path / "shard" / "tokens.bin").stat().st_size == 8 + 20


def test_shard_is_written_atomically(tmp_path):
    def interrupted():
        yield cut([[4]])
        raise KeyboardInterrupt

    try:
        write_shard(tmp_path / "shard", interrupted(), {"part": 0})
    except KeyboardInterrupt:
        assert list(tmp_path.iterdir()) == []
