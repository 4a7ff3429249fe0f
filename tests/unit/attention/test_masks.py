"""Each mask against a loop over positions; what attention refuses as a mask."""

from functools import partial

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import block_local_mask, causal_mask, padding_mask
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import ScaledDotScore
from heedful.errors import ArgumentError

SIZE = 7
LENGTHS = torch.tensor([1, 7, 0, 4])


def mask_by_loop(is_visible, size=SIZE):
    """Evaluate a predicate for every query and key."""
    return [[is_visible(query, key) for key in range(size)] for query in range(size)]


def test_padding_mask_hides_positions_after_length():
    expected = [[[key < length for key in range(SIZE)]] for length in LENGTHS.tolist()]
    assert padding_mask(LENGTHS, SIZE).tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 7])
def test_causal_mask_hides_later_positions(size):
    assert causal_mask(size).tolist() == [mask_by_loop(lambda query, key: key <= query, size)]


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_block_local_mask_hides_other_blocks(block):
    expected = mask_by_loop(lambda q, k: q // block == k // block)
    assert block_local_mask(SIZE, block).tolist() == [expected]


@pytest.mark.parametrize("build", [causal_mask, partial(block_local_mask, block_size=3)])
def test_mask_of_query_positions_selects_rows(build):
    positions = torch.tensor([[0, 3], [6, 2]])
    assert torch.equal(build(SIZE, query_positions=positions), build(SIZE)[0][positions])


def test_masks_created_on_requested_device():
    device = torch.device("meta")
    for mask in (
        padding_mask(LENGTHS.to(device), SIZE),
        causal_mask(SIZE, device=device),
        block_local_mask(SIZE, 3, device=device),
    ):
        assert mask.device == device


ATTENTION = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_mask_of_numbers_raises_with_reason(dtype):
    with pytest.raises(ArgumentError) as caught:
        ATTENTION.build_memory(torch.randn(2, 5, 4), torch.ones(2, 5, dtype=dtype))
    assert str(caught.value) == (
        f"mask: has dtype {dtype}, but must be Boolean, True where a query may attend: numbers may "
        "be summands of scores, factors of weights, or mark padding\n"
        "  pass mask == 0 for summands (0 and -inf) or marked padding, mask != 0 for factors"
    )


@pytest.mark.parametrize(
    "shape", [(5,), (5, 5), (2, 4), (2, 1), (3, 1, 5), (2, 3, 4), (2, 1, 1), (2, 1, 1, 5)]
)
def test_mask_of_wrong_shape_raises_with_both_shapes(shape):
    with pytest.raises(ArgumentError) as caught:
        ATTENTION.build_memory(torch.randn(2, 5, 4), torch.ones(shape, dtype=torch.bool))
    assert str(caught.value) == (
        f"mask: has shape {shape}, but must have (2, 5), or, if it differs between queries, "
        "(2, T, 5)\n  a mask (T, S) for all rows needs a batch dimension: mask.unsqueeze(0)"
    )


@pytest.mark.parametrize("need_weights", [False, True])
def test_mask_for_another_number_of_queries_raises(need_weights):
    memory = ATTENTION.build_memory(torch.randn(2, 5, 4), torch.ones(2, 3, 5, dtype=torch.bool))
    with pytest.raises(ArgumentError, match=r"has shape \(2, 3, 5\), but .*, \(2, 4, 5\)"):
        ATTENTION(torch.randn(2, 4, 4), memory, need_weights=need_weights)
