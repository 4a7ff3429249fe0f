"""Each mask against a loop over positions; what attention refuses as a mask."""

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention, WeightedSumReadout
from heedful.attention.dot_product_scores import ScaledDotScore
from heedful.attention.memory import (
    block_local_mask,
    causal_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    window_mask,
)
from heedful.errors import ArgumentError

SIZE = 7
LENGTHS = torch.tensor([1, 7, 0, 4])
IDS = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [5, 5, 5, 5, 5, 5, 5], [3, 1, 3, 1, 3, 1, 3]])


def mask_by_loop(is_visible, size=SIZE):
    """Evaluate a predicate for every query and key."""
    return [[is_visible(query, key) for key in range(size)] for query in range(size)]


def test_padding_mask_hides_positions_after_length():
    expected = [[[key < length for key in range(SIZE)]] for length in LENGTHS.tolist()]
    assert padding_mask(LENGTHS, SIZE).tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 7])
def test_causal_mask_hides_later_positions(size):
    assert causal_mask(size).tolist() == [mask_by_loop(lambda query, key: key <= query, size)]


@pytest.mark.parametrize("half_width", [0, 1, 3, 100])
def test_window_mask_hides_distant_positions(half_width):
    expected = mask_by_loop(lambda query, key: abs(query - key) <= half_width)
    assert window_mask(SIZE, half_width).tolist() == [expected]


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_block_local_mask_hides_other_blocks(block):
    expected = mask_by_loop(lambda q, k: q // block == k // block)
    assert block_local_mask(SIZE, block).tolist() == [expected]


def test_prefix_mask_with_causal_mask_shows_prefix_to_all():
    expected = [
        mask_by_loop(lambda query, key, length=length: key < length or key <= query)
        for length in LENGTHS.tolist()
    ]
    assert (prefix_mask(SIZE, LENGTHS) | causal_mask(SIZE)).tolist() == expected
    single = [[[key < length for key in range(SIZE)]] for length in LENGTHS.tolist()]
    assert prefix_mask(SIZE, LENGTHS).tolist() == single


def test_document_mask_hides_other_documents():
    expected = [
        mask_by_loop(lambda query, key, row=row: row[query] == row[key]) for row in IDS.tolist()
    ]
    assert document_mask(IDS).tolist() == expected


def test_masks_combine_with_and_and_or():
    one, other = padding_mask(torch.tensor([1]), 3), padding_mask(torch.tensor([2]), 3)
    assert torch.equal(one & other, one)
    assert torch.equal(one | other, other)


@pytest.mark.parametrize(
    "square",
    [
        causal_mask(SIZE),
        window_mask(SIZE, 2),
        block_local_mask(SIZE, 3),
        prefix_mask(SIZE, LENGTHS) | causal_mask(SIZE),
    ],
    ids=["causal", "window", "block local", "prefix"],
)
def test_square_masks_broadcast_with_padding_mask(square):
    joined = padding_mask(LENGTHS, SIZE) & square
    assert joined.shape == (len(LENGTHS), SIZE, SIZE)
    for row, length in enumerate(LENGTHS.tolist()):
        single = square.expand_as(joined)[row]
        assert torch.equal(joined[row, :, :length], single[:, :length])
        assert not joined[row, :, length:].any()


@pytest.mark.parametrize("row", range(len(IDS)))
def test_packed_documents_are_causal_separately(row):
    packed = (document_mask(IDS) & causal_mask(SIZE))[row]
    for document in IDS[row].unique():
        is_document = IDS[row] == document
        (causal,) = causal_mask(int(is_document.sum()))
        assert torch.equal(packed[is_document][:, is_document], causal)


def test_masks_are_created_on_requested_device():
    device = torch.device("meta")
    for mask in (
        padding_mask(LENGTHS.to(device), SIZE),
        causal_mask(SIZE, device=device),
        window_mask(SIZE, 2, device=device),
        block_local_mask(SIZE, 3, device=device),
        prefix_mask(SIZE, LENGTHS.to(device)),
        document_mask(IDS.to(device)),
    ):
        assert mask.device == device


ATTENTION = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_mask_of_numbers_is_rejected_with_reason(dtype):
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
def test_mask_of_wrong_shape_is_rejected_with_both_shapes(shape):
    with pytest.raises(ArgumentError) as caught:
        ATTENTION.build_memory(torch.randn(2, 5, 4), torch.ones(shape, dtype=torch.bool))
    assert str(caught.value) == (
        f"mask: has shape {shape}, but must have (2, 5), or, if it differs between queries, "
        "(2, T, 5)\n  a mask (T, S) for all rows needs a batch dimension: mask.unsqueeze(0)"
    )


@pytest.mark.parametrize("need_weights", [False, True])
def test_mask_for_another_number_of_queries_is_rejected(need_weights):
    memory = ATTENTION.build_memory(torch.randn(2, 5, 4), torch.ones(2, 3, 5, dtype=torch.bool))
    with pytest.raises(ArgumentError, match=r"has shape \(2, 3, 5\), but .*, \(2, 4, 5\)"):
        ATTENTION(torch.randn(2, 4, 4), memory, need_weights=need_weights)
