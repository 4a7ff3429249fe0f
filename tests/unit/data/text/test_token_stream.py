"""Windows of running text: every token is predicted once, and streams can be resumed."""

from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.shuffling import DataCursor
from heedful.data.text.token_stream import (
    LMBatchingConfig,
    LMBatchStream,
    concatenate_lines,
    disjoint_windows,
    encode_prompt,
    epoch_windows,
    overlapping_windows,
    tokens_fingerprint,
)
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from heedful.tokenization.vocabulary import EOS, PAD

LINES = ["in horto est", "", "Quis est?", "Caecilius in horto est, et in via"]
TOKENIZERS = [
    WordTokenizerConfig(),
    CharacterTokenizerConfig(),
    SubwordTokenizerConfig(vocab_size=300),
]

# Texts of distinct tokens: a token determines its cursor.
text_lengths = st.integers(2, 400)
configs = st.builds(
    LMBatchingConfig, batch_size=st.integers(1, 7), context_length=st.integers(2, 30)
)


def distinct_tokens(length):
    return np.arange(10, 10 + length, dtype=np.int32)


def predicted_tokens(batches):
    return [token for batch in batches for token in batch.targets.flatten().tolist() if token]


@pytest.mark.parametrize("config", TOKENIZERS, ids=lambda config: config.type)
def test_concatenate_lines_round_trip(config):
    tokenizer = config.train(LINES)
    tokens = concatenate_lines(LINES, tokenizer).tolist()
    assert tokens[0] == tokens[-1] == EOS
    assert tokens.count(EOS) == len(LINES) + 1
    lines, line = [], []
    for token in tokens[1:]:
        if token == EOS:
            lines.append(tokenizer.decode(line))
        line = [] if token == EOS else [*line, token]
    assert lines == LINES


@pytest.mark.parametrize("config", TOKENIZERS, ids=lambda config: config.type)
def test_encode_prompt_is_prefix_of_text(config):
    tokenizer = config.train(LINES)
    tokens = concatenate_lines(LINES, tokenizer).tolist()
    assert encode_prompt("\n".join(LINES), tokenizer) == tokens[:-1]
    assert encode_prompt("", tokenizer) == [EOS]


@given(length=text_lengths, config=configs, epoch=st.integers(0, 5), seed=st.integers(0, 99))
def test_epoch_windows_predict_next_token_once(length, config, epoch, seed):
    batches = list(epoch_windows(distinct_tokens(length), config, seed=seed, epoch=epoch))
    for batch in batches:
        assert torch.equal(batch.targets, batch.inputs + 1)
        assert batch.inputs.size(1) <= config.context_length
        assert batch.num_targets == batch.num_tokens == batch.inputs.numel()
    predicted = predicted_tokens(batches)
    assert len(predicted) == len(set(predicted))
    num_skipped = length - 1 - len(predicted)
    assert num_skipped < config.context_length + config.batch_size


@given(length=text_lengths, config=configs)
def test_epoch_windows_continue_rows_across_batches(length, config):
    batches = list(epoch_windows(distinct_tokens(length), config, seed=0, epoch=0))
    for previous, batch in pairwise(batches):
        assert torch.equal(batch.inputs[:, 0], previous.targets[:, -1])


def test_epoch_windows_start_at_different_offsets():
    config = LMBatchingConfig(batch_size=2, context_length=20)
    firsts = [
        next(epoch_windows(distinct_tokens(200), config, seed=3, epoch=epoch)).inputs[0, 0].item()
        - 10
        for epoch in range(200)
    ]
    assert set(firsts) == set(range(20))


def test_short_text_uses_fewer_rows():
    config = LMBatchingConfig(batch_size=32, context_length=10)
    batch = next(epoch_windows(distinct_tokens(46), config, seed=0, epoch=0))
    assert batch.inputs.size(1) == 10
    assert len(batch.inputs) in (3, 4)


@given(num_used=st.integers(0, 40))
def test_lm_batch_stream_resumes_from_any_cursor(num_used):
    def stream(cursor):
        config = LMBatchingConfig(batch_size=3, context_length=8)
        return LMBatchStream(distinct_tokens(150), config, seed=5, cursor=cursor)

    whole = list(islice(stream(DataCursor(0, 0)), num_used + 5))
    interrupted = stream(DataCursor(0, 0))
    for _ in islice(interrupted, num_used):
        pass
    resumed = list(islice(stream(interrupted.cursor), 5))
    assert all(
        torch.equal(a.inputs, b.inputs) for a, b in zip(whole[num_used:], resumed, strict=True)
    )


def test_transform_receives_cursor_of_the_batch():
    cursors = []

    def transform(batch, cursor):
        cursors.append(cursor)
        return batch

    config = LMBatchingConfig(batch_size=1, context_length=30)
    stream = LMBatchStream(
        distinct_tokens(61), config, seed=0, cursor=DataCursor(2, 1), transform=transform
    )
    list(islice(stream, 2))
    assert cursors == [DataCursor(2, 1), DataCursor(3, 0)]


@given(length=text_lengths, config=configs)
def test_overlapping_windows_predict_each_token_once_with_half_context(length, config):
    predicted = []
    for batch in overlapping_windows(distinct_tokens(length), config):
        assert len(batch.inputs) <= config.batch_size
        assert batch.inputs.size(1) <= config.context_length
        for row, column in (batch.targets != PAD).nonzero().tolist():
            token = batch.targets[row, column].item()
            assert token == batch.inputs[row, column] + 1
            before = token - 10
            assert column + 1 >= min(before, config.context_length / 2)
            predicted.append(before)
    assert predicted == list(range(1, length))


@given(length=text_lengths, config=configs)
def test_disjoint_windows_cover_tokens_once(length, config):
    batches = list(disjoint_windows(distinct_tokens(length), config))
    assert predicted_tokens(batches) == distinct_tokens(length).tolist()
    assert sum(int(batch.lengths.sum()) for batch in batches) == length


def test_tokens_fingerprint_differs_between_texts():
    assert tokens_fingerprint(distinct_tokens(7)) == tokens_fingerprint(distinct_tokens(7))
    assert tokens_fingerprint(distinct_tokens(7)) != tokens_fingerprint(distinct_tokens(8))
