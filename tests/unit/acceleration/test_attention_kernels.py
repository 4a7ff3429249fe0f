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


def value_and_gradients(found, queries, memory, module, slopes):
    wanted = [queries, memory[0], memory[1][0], *module.query.parameters()]
    return [found, *torch.autograd.grad(found, wanted, slopes)]


def asked(module, given, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "QUERY_CHUNK_SIZE", chunk)
        return attend_in_chunks(module, *given, list(module.parameters()))


@pytest.mark.parametrize("chunk", [1, 3, TIMES, 2 * TIMES])
def test_chunks_are_asked_as_all_at_once(chunk):
    module, given = RequestEncoder().double(), inputs()
    queries, _, memory = given
    slopes = torch.randn(ROWS, TIMES, SIZE, dtype=torch.double)
    found = value_and_gradients(asked(module, given, chunk), queries, memory, module, slopes)
    wanted = value_and_gradients(module(*given), queries, memory, module, slopes)
    torch.testing.assert_close(found, wanted)


def test_gradients_are_those_of_finite_differences_though_chunks_draw():
    module, (queries, places, (keys, (values, visible))) = (
        RequestEncoder(dropout=0.4).double(),
        inputs(),
    )

    def ask(queries, keys, values):
        torch.manual_seed(3)
        return asked(module, (queries, places, (keys, (values, visible))), 4)

    assert torch.autograd.gradcheck(ask, (queries, keys, values), fast_mode=True)


def test_asking_again_moves_no_random_numbers():
    module, given = RequestEncoder(dropout=0.4).double(), inputs()
    found = asked(module, given, 4)
    before = torch.get_rng_state()
    found.sum().backward()
    assert (torch.get_rng_state() == before).all()


def test_chunks_are_asked_again_as_narrowly_as_before():
    module, given = RequestEncoder(), inputs(torch.float)
    queries, _, memory = given
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = asked(module, given, 4), module(*given)
    assert found.dtype == wanted.dtype == torch.bfloat16
    slopes = torch.randn_like(found)
    results = [
        value_and_gradients(each, queries, memory, module, slopes) for each in (found, wanted)
    ]
    torch.testing.assert_close(*results, rtol=0.02, atol=0.1)


def test_gradients_of_narrow_numbers_are_summed_in_wide_ones(monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", 1)
    keys = torch.zeros(1, 1, SIZE, dtype=torch.bfloat16, requires_grad=True)
    queries = torch.full((1, 1000, SIZE), 1.0, dtype=torch.bfloat16)
    places = torch.arange(1000).unsqueeze(0)
    found = attend_in_chunks(lambda own, _, held: own + held, queries, places, keys, [])
    found.sum().backward()
    # One by one in bfloat16 the sum would stop at 256, the first number that has no next.
    torch.testing.assert_close(keys.grad.float(), torch.full((1, 1, SIZE), 1000.0))


def test_nothing_is_kept_where_nothing_is_learned():
    module, given = RequestEncoder().double(), inputs()
    with torch.no_grad():
        found = asked(module, given, 4)
    assert found.grad_fn is None
    torch.testing.assert_close(found, module(*given))
