"""Masks, each against a plain loop over its positions."""

import pytest
import torch

from heedful.attention import (
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


def loop(may_see, size=SIZE):
    """Ask of every query and every key whether one may see the other."""
    return [[may_see(query, key) for key in range(size)] for query in range(size)]


def test_padding_hides_what_lies_beyond_the_end():
    wanted = [[[key < length for key in range(SIZE)]] for length in LENGTHS.tolist()]
    assert padding_mask(LENGTHS, SIZE).tolist() == wanted


@pytest.mark.parametrize("size", [0, 1, 7])
def test_causal_hides_the_future(size):
    assert causal_mask(size).tolist() == loop(lambda query, key: key <= query, size)


@pytest.mark.parametrize("reach", [0, 1, 3, 100])
def test_window_hides_what_is_out_of_reach(reach):
    assert window_mask(SIZE, reach).tolist() == loop(lambda query, key: abs(query - key) <= reach)


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_block_local_hides_what_lies_outside_the_own_block(block):
    assert block_local_mask(SIZE, block).tolist() == loop(lambda q, k: q // block == k // block)


def test_a_prefix_is_seen_by_everyone_and_the_rest_by_what_follows():
    wanted = [
        loop(lambda query, key, length=length: key < length or key <= query)
        for length in LENGTHS.tolist()
    ]
    assert (prefix_mask(SIZE, LENGTHS) | causal_mask(SIZE)).tolist() == wanted
    alone = [[[key < length for key in range(SIZE)]] for length in LENGTHS.tolist()]
    assert prefix_mask(SIZE, LENGTHS).tolist() == alone


def test_documents_see_themselves_alone():
    wanted = [loop(lambda query, key, row=row: row[query] == row[key]) for row in IDS.tolist()]
    assert document_mask(IDS).tolist() == wanted


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
def test_a_mask_for_all_joins_the_padding_of_each(square):
    joined = padding_mask(LENGTHS, SIZE) & square
    assert joined.shape == (len(LENGTHS), SIZE, SIZE)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = square.expand_as(joined)[row]
        assert torch.equal(joined[row, :, :length], alone[:, :length])
        assert not joined[row, :, length:].any()


@pytest.mark.parametrize("row", range(len(IDS)))
def test_packed_documents_are_causal_each_on_its_own(row):
    packed = (document_mask(IDS) & causal_mask(SIZE))[row]
    for document in IDS[row].unique():
        places = IDS[row] == document
        assert torch.equal(packed[places][:, places], causal_mask(int(places.sum())))


def test_masks_are_made_where_they_are_needed():
    elsewhere = torch.device("meta")
    for mask in (
        padding_mask(LENGTHS.to(elsewhere), SIZE),
        causal_mask(SIZE, device=elsewhere),
        window_mask(SIZE, 2, device=elsewhere),
        block_local_mask(SIZE, 3, device=elsewhere),
        prefix_mask(SIZE, LENGTHS.to(elsewhere)),
        document_mask(IDS.to(elsewhere)),
    ):
        assert mask.device == elsewhere
