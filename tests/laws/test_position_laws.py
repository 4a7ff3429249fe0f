"""Invariants of every positional encoding, added or concatenated."""

from typing import get_args

import pytest
import torch

from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config.base import type_of, types_in

SIZE = 6
COMBINERS = {
    f"{type_of(member)}, {combine}": member(combine=combine)
    for member in types_in(PositionalEncodingConfig)
    for combine in get_args(member.model_fields["combine"].annotation)
}
all_combiners = pytest.mark.parametrize("name", COMBINERS)


def build(name):
    torch.manual_seed(0)
    return COMBINERS[name].build(embedding_size=SIZE).double()


def random_vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


@all_combiners
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_independent(name, leading):
    combiner, vectors = build(name), random_vectors(*leading, 5)
    encoded = combiner(vectors)
    assert encoded.shape == (*leading, 5, combiner.output_size)
    separate = torch.stack([combiner(row) for row in vectors.view(-1, 5, SIZE)])
    torch.testing.assert_close(encoded.view(-1, 5, combiner.output_size), separate)


@all_combiners
def test_encoding_in_pieces_same_as_encoding_at_once(name):
    combiner, vectors = build(name), random_vectors(2, 7)
    pieces = [
        combiner(vectors[:, :3]),
        combiner(vectors[:, 3:4], 3),
        combiner(vectors[:, 4:], 4),
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), combiner(vectors))


@all_combiners
def test_rows_may_have_different_start_positions(name):
    combiner, vectors = build(name), random_vectors(2, 3)
    encoded = combiner(vectors, torch.tensor([4, 9]))
    for row, first in enumerate((4, 9)):
        torch.testing.assert_close(encoded[row], combiner(vectors[row], first))


@all_combiners
def test_encoding_is_independent_of_length(name):
    combiner, vectors = build(name), random_vectors(2, 7)
    torch.testing.assert_close(combiner(vectors)[:, :4], combiner(vectors[:, :4]))


@all_combiners
def test_different_positions_have_different_encodings(name):
    combiner = build(name)
    encoded = combiner(random_vectors(1).expand(40, SIZE))
    distances = torch.cdist(encoded, encoded) + torch.eye(40)
    assert distances.min() > 1e-3


@all_combiners
def test_far_positions_have_finite_encodings(name):
    encoded = build(name)(random_vectors(2), 10**6)
    assert encoded.isfinite().all()


@all_combiners
@pytest.mark.parametrize("dtype", [torch.float, torch.float16, torch.bfloat16], ids=str)
def test_encoding_keeps_dtype(name, dtype):
    combiner, vectors = build(name), random_vectors(3)
    encoded = combiner.to(dtype)(vectors.to(dtype), 300)
    assert encoded.dtype == dtype
    expected = build(name)(vectors, 300)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(encoded.double(), expected, rtol=eps, atol=8 * eps)


@all_combiners
def test_gradients_match_finite_differences(name):
    combiner = build(name)
    inputs = (random_vectors(3).requires_grad_(), *combiner.parameters())
    assert torch.autograd.gradcheck(lambda vectors, *_: combiner(vectors), inputs, fast_mode=True)
