"""Compressed attention against a loop that follows the paper, place by place."""

import pytest
import torch

from heedful.acceleration import tuning
from heedful.acceleration.registry import accelerate_for_training
from heedful.attention.config import AttentionConfig
from heedful.layers.self_attention import BatchPositions, CompressedSelfAttention

ROWS, LENGTH, SIZE, NUM_HEADS = 2, 11, 6, 2
WIDTH = SIZE // NUM_HEADS


def build(stride=3, *, dropout=0.0):
    config = AttentionConfig.model_validate(
        {
            "score": {"type": "scaled-dot"},
            "multi_head": {"num_heads": NUM_HEADS, "bias": True},
            "dropout": dropout,
        }
    )
    attention = config.build(query_size=SIZE, memory_size=SIZE)
    return CompressedSelfAttention(attention, size=SIZE, stride=stride).double()


def vectors(length=LENGTH):
    return torch.randn(ROWS, length, SIZE, dtype=torch.double, requires_grad=True)


def read(module, inputs, **options):
    lengths, first = torch.full((ROWS,), inputs.size(1)), torch.zeros(ROWS, dtype=torch.long)
    positions = BatchPositions.from_lengths(inputs, first, lengths)
    return module(inputs, module.initial_state(inputs), positions, **options)


def pressed(press, words):
    """sum_i C_i word_i + b over the words of one piece; missing ones are zeros."""
    total = press.bias.clone()
    for number, word in enumerate(words):
        total = total + press.weight[:, :, number] @ word
    return total


def looked(attention, word, keys, values):
    """What one word finds in some pieces, head by head; in none it finds zeros."""
    if not keys:
        return attention.output_projection(torch.zeros_like(word))
    query, actual = attention.query_projection(word), []
    for head in range(NUM_HEADS):
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        scores = torch.stack([query[own] @ attention.key_projection(key)[own] for key in keys])
        weights = (scores / WIDTH**0.5).softmax(dim=0)
        taken = [attention.value_projection(value)[own] for value in values]
        actual.append(sum(weight * each for weight, each in zip(weights, taken, strict=True)))
    return attention.output_projection(torch.cat(actual))


def slowly(module, row, *, forward_bidirectional):
    """One row, place by place: a piece is seen when the place has passed its last word."""
    stride, outputs = module.stride, []
    for place, word in enumerate(row):
        ends = range(
            stride, len(row) + 1 if not forward_bidirectional else len(row) + stride, stride
        )
        pieces = [
            row[end - stride : end] for end in ends if forward_bidirectional or end <= place + 1
        ]
        keys = [pressed(module.compress_keys, piece) for piece in pieces]
        values = [pressed(module.compress_values, piece) for piece in pieces]
        outputs.append(looked(module.attention, word, keys, values))
    return torch.stack(outputs)


def compare(module, inputs, actual, expected):
    torch.testing.assert_close(actual, expected)
    grad_outputs, learned = torch.randn_like(expected), [inputs, *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(actual, learned, grad_outputs),
        torch.autograd.grad(expected, learned, grad_outputs),
    )


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("chunk", [512, 4], ids=["at once", "in chunks"])
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
def test_causal_compressed_attention_same_as_a_loop(stride, chunk, need_weights, monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", chunk)
    module, inputs = build(stride), vectors()
    accelerated = accelerate_for_training(module, "cpu")
    actual = read(accelerated, inputs, need_weights=need_weights).outputs
    expected = torch.stack([slowly(module, row, forward_bidirectional=False) for row in inputs])
    compare(module, inputs, actual, expected)


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [1, 8, 9])
def test_bidirectional_compressed_attention_same_as_a_loop(stride, length):
    module, inputs = build(stride), vectors(length)
    actual = module.forward_bidirectional(inputs, torch.ones(ROWS, length, dtype=torch.bool))
    expected = torch.stack([slowly(module, row, forward_bidirectional=True) for row in inputs])
    compare(module, inputs, actual, expected)


def test_weight_of_a_segment_is_spread_evenly_over_the_positions():
    weights = read(build(), vectors(), need_weights=True).weights
    pieces = weights.unflatten(-1, (-1, 3))
    torch.testing.assert_close(pieces, pieces[..., :1].expand_as(pieces))
    assert (weights[:, :2] == 0).all()
    torch.testing.assert_close(weights[:, 2:].sum(-1), torch.ones(ROWS, 9, dtype=torch.double))
    torch.testing.assert_close(weights[:, 2, :3], torch.full((ROWS, 3), 1 / 3, dtype=torch.double))


def test_chunks_repeat_dropout_in_backward(monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", 4)
    module, inputs = accelerate_for_training(build(dropout=0.5), "cpu"), vectors()

    def ask(words):
        torch.manual_seed(1)
        return read(module, words).outputs

    assert torch.autograd.gradcheck(ask, inputs, fast_mode=True)
    assert not torch.allclose(ask(inputs), read(module.eval(), inputs).outputs)
