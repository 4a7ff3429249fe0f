"""Attention in chunks of queries equals attention at once, in value and in gradient."""

import pytest
import torch
from torch import nn

from heedful.acceleration import tuning
from heedful.acceleration.chunked_attention import attend_in_chunks

BATCH_SIZE, NUM_QUERIES, NUM_KEYS, SIZE = 2, 11, 5, 4


class PositionalAttention(nn.Module):
    """Attention that adds positions to its scores; one of its parameters is never used."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.query = nn.Linear(SIZE, SIZE)
        self.unused = nn.Linear(1, 1)
        self.frozen = nn.Linear(SIZE, SIZE).requires_grad_(False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, positions, memory):
        keys, (values, visible) = memory
        scores = self.frozen(self.query(queries)) @ keys.mT + positions.unsqueeze(-1)
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1)
        return self.dropout(weights) @ values


def inputs(dtype=torch.double):
    queries = torch.randn(BATCH_SIZE, NUM_QUERIES, SIZE, dtype=dtype, requires_grad=True)
    keys, values = torch.randn(2, BATCH_SIZE, NUM_KEYS, SIZE, dtype=dtype).unbind()
    visible = torch.tensor([[[True] * NUM_KEYS], [[True] * 3 + [False] * 2]])
    memory = keys.requires_grad_(), (values.requires_grad_(), visible)
    return queries, torch.arange(NUM_QUERIES).expand(BATCH_SIZE, -1), memory


def value_and_gradients(actual, queries, memory, module, grad_outputs):
    expected = [queries, memory[0], memory[1][0], *module.query.parameters()]
    return [actual, *torch.autograd.grad(actual, expected, grad_outputs)]


def chunked(module, arguments, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "QUERY_CHUNK_SIZE", chunk)
        return attend_in_chunks(module, *arguments, list(module.parameters()))


@pytest.mark.parametrize("chunk", [1, 3, NUM_QUERIES, 2 * NUM_QUERIES])
def test_chunked_attention_equals_attention_at_once(chunk):
    module, arguments = PositionalAttention().double(), inputs()
    queries, _, memory = arguments
    grad_outputs = torch.randn(BATCH_SIZE, NUM_QUERIES, SIZE, dtype=torch.double)
    actual = value_and_gradients(
        chunked(module, arguments, chunk), queries, memory, module, grad_outputs
    )
    expected = value_and_gradients(module(*arguments), queries, memory, module, grad_outputs)
    torch.testing.assert_close(actual, expected)


def test_gradients_match_finite_differences_with_dropout():
    module, (queries, positions, (keys, (values, visible))) = (
        PositionalAttention(dropout=0.4).double(),
        inputs(),
    )

    def attend(queries, keys, values):
        torch.manual_seed(3)
        return chunked(module, (queries, positions, (keys, (values, visible))), 4)

    assert torch.autograd.gradcheck(attend, (queries, keys, values), fast_mode=True)


def test_backward_does_not_advance_the_rng():
    module, arguments = PositionalAttention(dropout=0.4).double(), inputs()
    actual = chunked(module, arguments, 4)
    before = torch.get_rng_state()
    actual.sum().backward()
    assert (torch.get_rng_state() == before).all()


def test_backward_uses_the_autocast_of_forward():
    module, arguments = PositionalAttention(), inputs(torch.float)
    queries, _, memory = arguments
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, expected = chunked(module, arguments, 4), module(*arguments)
    assert actual.dtype == expected.dtype == torch.bfloat16
    grad_outputs = torch.randn_like(actual)
    results = [
        value_and_gradients(each, queries, memory, module, grad_outputs)
        for each in (actual, expected)
    ]
    torch.testing.assert_close(*results, rtol=0.02, atol=0.1)


def test_gradients_summed_in_float32(monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", 1)
    keys = torch.zeros(1, 1, SIZE, dtype=torch.bfloat16, requires_grad=True)
    queries = torch.full((1, 1000, SIZE), 1.0, dtype=torch.bfloat16)
    positions = torch.arange(1000).unsqueeze(0)
    actual = attend_in_chunks(lambda chunk, _, memory: chunk + memory, queries, positions, keys, [])
    actual.sum().backward()
    # One by one in bfloat16 the sum would stop at 256, the first number that has no next.
    torch.testing.assert_close(keys.grad.float(), torch.full((1, 1, SIZE), 1000.0))


def test_nothing_is_saved_without_gradients():
    module, arguments = PositionalAttention().double(), inputs()
    with torch.no_grad():
        actual = chunked(module, arguments, 4)
    assert actual.grad_fn is None
    torch.testing.assert_close(actual, module(*arguments))
