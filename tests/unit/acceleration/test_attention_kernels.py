"""Asked in chunks is asked at once, in value and in gradient, whatever is drawn."""

import pytest
import torch
from torch import nn

from heedful.acceleration import tuning
from heedful.acceleration.attention_kernels import attend_in_chunks

ROWS, TIMES, PLACES, SIZE = 2, 11, 5, 4


class RequestEncoder(nn.Module):
    """Attention that is told the number of each query, with one weight that is never used."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.query = nn.Linear(SIZE, SIZE)
        self.unused = nn.Linear(1, 1)
        self.frozen = nn.Linear(SIZE, SIZE).requires_grad_(False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, places, memory):
        keys, (values, visible) = memory
        scores = self.frozen(self.query(queries)) @ keys.mT + places.unsqueeze(-1)
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1)
        return self.dropout(weights) @ values


def inputs(dtype=torch.double):
    queries = torch.randn(ROWS, TIMES, SIZE, dtype=dtype, requires_grad=True)
    keys, values = torch.randn(2, ROWS, PLACES, SIZE, dtype=dtype).unbind()
    visible = torch.tensor([[[True] * PLACES], [[True] * 3 + [False] * 2]])
    memory = keys.requires_grad_(), (values.requires_grad_(), visible)
    return queries, torch.arange(TIMES).expand(ROWS, -1), memory


def value_and_gradients(actual, queries, memory, module, grad_outputs):
    expected = [queries, memory[0], memory[1][0], *module.query.parameters()]
    return [actual, *torch.autograd.grad(actual, expected, grad_outputs)]


def asked(module, given, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "QUERY_CHUNK_SIZE", chunk)
        return attend_in_chunks(module, *given, list(module.parameters()))


@pytest.mark.parametrize("chunk", [1, 3, TIMES, 2 * TIMES])
def test_chunked_attention_equals_attention_at_once(chunk):
    module, given = RequestEncoder().double(), inputs()
    queries, _, memory = given
    grad_outputs = torch.randn(ROWS, TIMES, SIZE, dtype=torch.double)
    actual = value_and_gradients(asked(module, given, chunk), queries, memory, module, grad_outputs)
    expected = value_and_gradients(module(*given), queries, memory, module, grad_outputs)
    torch.testing.assert_close(actual, expected)


def test_gradients_match_finite_differences_with_dropout():
    module, (queries, places, (keys, (values, visible))) = (
        RequestEncoder(dropout=0.4).double(),
        inputs(),
    )

    def ask(queries, keys, values):
        torch.manual_seed(3)
        return asked(module, (queries, places, (keys, (values, visible))), 4)

    assert torch.autograd.gradcheck(ask, (queries, keys, values), fast_mode=True)


def test_backward_does_not_advance_the_rng():
    module, given = RequestEncoder(dropout=0.4).double(), inputs()
    actual = asked(module, given, 4)
    before = torch.get_rng_state()
    actual.sum().backward()
    assert (torch.get_rng_state() == before).all()


def test_backward_uses_the_autocast_of_forward():
    module, given = RequestEncoder(), inputs(torch.float)
    queries, _, memory = given
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, expected = asked(module, given, 4), module(*given)
    assert actual.dtype == expected.dtype == torch.bfloat16
    grad_outputs = torch.randn_like(actual)
    results = [
        value_and_gradients(each, queries, memory, module, grad_outputs)
        for each in (actual, expected)
    ]
    torch.testing.assert_close(*results, rtol=0.02, atol=0.1)


def test_gradients_are_summed_in_float32(monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", 1)
    keys = torch.zeros(1, 1, SIZE, dtype=torch.bfloat16, requires_grad=True)
    queries = torch.full((1, 1000, SIZE), 1.0, dtype=torch.bfloat16)
    places = torch.arange(1000).unsqueeze(0)
    actual = attend_in_chunks(lambda own, _, held: own + held, queries, places, keys, [])
    actual.sum().backward()
    # One by one in bfloat16 the sum would stop at 256, the first number that has no next.
    torch.testing.assert_close(keys.grad.float(), torch.full((1, 1, SIZE), 1000.0))


def test_nothing_is_saved_without_gradients():
    module, given = RequestEncoder().double(), inputs()
    with torch.no_grad():
        actual = asked(module, given, 4)
    assert actual.grad_fn is None
    torch.testing.assert_close(actual, module(*given))
