import numpy as np

from heedful.data.text.batching import BatchSpec, collate, collate_sources
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.tokenization.ragged_array import RaggedArray
from heedful.tokenization.vocabulary import BOS, EOS, PAD

STORE = InMemoryPairDataset(
    RaggedArray.from_sequences([[7, 8, 9], [5]]), RaggedArray.from_sequences([[6], [4, 4, 4]])
)


def test_collate_adds_bos_and_eos():
    batch = collate(STORE, BatchSpec(np.array([1, 0]), 5, 4))
    assert batch.sources.tokens.tolist() == [[5, EOS, PAD, PAD, PAD], [7, 8, 9, EOS, PAD]]
    assert batch.sources.lengths.tolist() == [2, 4]
    assert batch.decoder_inputs.tolist() == [[BOS, 4, 4, 4], [BOS, 6, PAD, PAD]]
    assert batch.targets.tolist() == [[4, 4, 4, EOS], [6, EOS, PAD, PAD]]


def test_batch_counts_exclude_padding():
    batch = collate(STORE, BatchSpec(np.array([0, 1]), 9, 9))
    assert batch.num_targets == 2 + 4
    assert batch.num_tokens == (4 + 2) + (2 + 4)


def test_collate_sources_pads_to_longest():
    sources = collate_sources([[5, 6], [7, 8, 9], []])
    assert sources.tokens.tolist() == [[5, 6, EOS, PAD], [7, 8, 9, EOS], [EOS, PAD, PAD, PAD]]
    assert sources.lengths.tolist() == [3, 4, 1]
