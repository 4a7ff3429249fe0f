"""Each mask against a loop over positions."""

import pytest
import torch

from heedful.attention.memory import (
    block_local_mask,
    causal_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    window_mask,
)

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
    assert causal_mask(size).tolist() == mask_by_loop(lambda query, key: key <= query, size)


@pytest.mark.parametrize("half_width", [0, 1, 3, 100])
def test_window_mask_hides_distant_positions(half_width):
    assert window_mask(SIZE, half_width).tolist() == mask_by_loop(
        lambda query, key: abs(query - key) <= half_width
    )


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_block_local_mask_hides_other_blocks(block):
    assert block_local_mask(SIZE, block).tolist() == mask_by_loop(
        lambda q, k: q // block == k // block
    )


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
        assert torch.equal(packed[is_document][:, is_document], causal_mask(int(is_document.sum())))


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
