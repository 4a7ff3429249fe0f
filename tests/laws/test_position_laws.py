"""What all vectors of places promise, and all ways to join them."""

from itertools import product

import pytest
import torch

from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config.base import type_of, types_in

SIZE = 6
PLACINGS = {
    f"{type_of(member)}, {join}": member(combine=join)
    for member, join in product(types_in(PositionalEncodingConfig), ["add", "concatenate"])
}
each_placing = pytest.mark.parametrize("name", PLACINGS)


def build(name):
    torch.manual_seed(0)
    return PLACINGS[name].build(embedding_size=SIZE).double()


def vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


@each_placing
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_free(name, leading):
    placing, words = build(name), vectors(*leading, 5)
    told = placing(words)
    assert told.shape == (*leading, 5, placing.output_size)
    apart = torch.stack([placing(row) for row in words.view(-1, 5, SIZE)])
    torch.testing.assert_close(told.view(-1, 5, placing.output_size), apart)


@each_placing
def test_a_text_read_piece_by_piece_is_told_the_same_places(name):
    placing, words = build(name), vectors(2, 7)
    pieces = [placing(words[:, :3]), placing(words[:, 3:4], 3), placing(words[:, 4:], 4)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), placing(words))


@each_placing
def test_each_row_may_begin_at_a_place_of_its_own(name):
    placing, words = build(name), vectors(2, 3)
    told = placing(words, torch.tensor([4, 9]))
    for row, first in enumerate((4, 9)):
        torch.testing.assert_close(told[row], placing(words[row], first))


@each_placing
def test_a_longer_neighbour_changes_nothing(name):
    placing, words = build(name), vectors(2, 7)
    torch.testing.assert_close(placing(words)[:, :4], placing(words[:, :4]))


@each_placing
def test_places_that_differ_are_told_apart(name):
    placing = build(name)
    told = placing(vectors(1).expand(40, SIZE))
    distances = torch.cdist(told, told) + torch.eye(40)
    assert distances.min() > 1e-3


@each_placing
def test_places_beyond_any_seen_are_served(name):
    told = build(name)(vectors(2), 10**6)
    assert told.isfinite().all()


@each_placing
@pytest.mark.parametrize("dtype", [torch.float, torch.float16, torch.bfloat16], ids=str)
def test_the_precision_of_the_vectors_is_kept(name, dtype):
    placing, words = build(name), vectors(3)
    told = placing.to(dtype)(words.to(dtype), 300)
    assert told.dtype == dtype
    wanted = build(name)(words, 300)
    torch.testing.assert_close(told.double(), wanted, rtol=0, atol=8 * torch.finfo(dtype).eps)


@each_placing
def test_gradients_are_those_of_finite_differences(name):
    placing = build(name)
    inputs = (vectors(3).requires_grad_(), *placing.parameters())
    assert torch.autograd.gradcheck(lambda words, *_: placing(words), inputs, fast_mode=True)
