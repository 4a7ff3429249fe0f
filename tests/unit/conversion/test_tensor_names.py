"""Tensor tables: what one direction writes, the other reads."""

import pytest
import torch

from heedful.conversion.tensor_names import (
    NEVER_LOGIT,
    TRANSPOSED,
    TensorRule,
    TensorTable,
    VocabularyOrder,
    affine,
    concatenated,
    identity_order,
    nested,
    tensor,
)
from heedful.errors import DataError
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK

TABLE = TensorTable(
    nested(
        "layers.*.",
        "h.*.",
        [
            TensorRule(("query", "key", "value"), "qkv", concatenated(3)),
            tensor("up", "down", TRANSPOSED),
            *affine("norm", "ln"),
        ],
    )
)


def example():
    torch.manual_seed(0)
    shapes = {"query": (2, 4), "key": (2, 4), "value": (2, 4), "up": (3, 5)}
    shapes |= {"norm.weight": (4,), "norm.bias": (4,)}
    return {f"layers.{n}.{name}": torch.randn(shapes[name]) for n in (0, 11) for name in shapes}


def test_table_returns_back_equal_tensors():
    ours = example()
    theirs = TABLE.export_tensors(ours)
    assert sorted(theirs) == sorted(
        f"h.{n}.{name}" for n in (0, 11) for name in ("qkv", "down", "ln.weight", "ln.bias")
    )
    assert theirs["h.11.down"].shape == (5, 3)
    again = TABLE.import_tensors(theirs, ours, location="model")
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_concatenated_tensors_keep_order():
    ours = example()
    theirs = TABLE.export_tensors(ours)["h.0.qkv"]
    assert torch.equal(theirs[:2], ours["layers.0.query"])
    assert torch.equal(theirs[4:], ours["layers.0.value"])


def test_names_of_several_tensors_are_one():
    names = TABLE.foreign_names(["layers.3.key", "layers.3.value", "other"])
    assert names == {"layers.3.key": "h.3.qkv", "layers.3.value": "h.3.qkv"}


def test_unnamed_tensor_raises():
    with pytest.raises(KeyError, match=r"other\.weight"):
        TABLE.export_tensors({"other.weight": torch.zeros(1)})


def test_ignored_tensors_may_be_there():
    ours = example()
    theirs = TABLE.export_tensors(ours) | {"h.0.mask": torch.zeros(1)}
    with pytest.raises(DataError, match=r"h\.0\.mask is of no known part"):
        TABLE.import_tensors(theirs, ours, location="model")
    assert TABLE.import_tensors(theirs, ours, location="model", ignored=[r"h\.\d+\.mask"])


# ----- the order of vocabularies

ORDERS = {
    "Marian": {"pad": 5, "unk": 1, "decoder_start": 5, "eos": 0},
    "BART": {"pad": 1, "unk": 3, "decoder_start": 2, "eos": 2},
    "own first token": {"pad": 1, "unk": 3, "decoder_start": 0, "eos": 2},
    "no unknown token": {"pad": 4, "unk": None, "decoder_start": 0, "eos": 2},
}
each_order = pytest.mark.parametrize("ids", ORDERS.values(), ids=ORDERS)


@each_order
def test_order_has_every_token_once_and_special_ones_first(ids):
    order = VocabularyOrder.from_special_tokens(6, **ids)
    vocab_ids = order.vocab_ids()
    assert sorted(vocab_ids) == list(range(6))
    assert len(set(vocab_ids.values())) == 6
    assert (vocab_ids[ids["pad"]], vocab_ids[ids["eos"]]) == (PAD, EOS)
    assert order.rows[BOS] == ids["decoder_start"]
    assert ids["unk"] is None or vocab_ids[ids["unk"]] == UNK


@each_order
def test_log_probabilities_do_not_depend_on_the_order(ids):
    torch.manual_seed(0)
    order, weight, bias = (
        VocabularyOrder.from_special_tokens(6, **ids),
        torch.randn(6, 4),
        torch.randn(1, 6),
    )
    features = torch.randn(3, 4)
    (our_weight,) = order.table_layout.unpack(weight)
    (our_bias,) = order.bias_layout.unpack(bias)
    ours = (features @ our_weight.T + our_bias).log_softmax(-1)
    theirs = (features @ weight.T + bias).log_softmax(-1)
    vocab_ids = order.vocab_ids()
    torch.testing.assert_close(ours[:, [vocab_ids[row] for row in range(6)]], theirs)
    never = sorted(set(range(len(order.rows))) - set(vocab_ids.values()))
    assert (our_bias[never] == NEVER_LOGIT).all()


@each_order
def test_tables_come_back_equal(ids):
    order, table, bias = (
        VocabularyOrder.from_special_tokens(6, **ids),
        torch.randn(6, 4),
        torch.randn(1, 6),
    )
    for layout, theirs in ((order.table_layout, table), (order.bias_layout, bias)):
        assert torch.equal(layout.pack(layout.unpack(theirs)), theirs)


def test_text_token_has_a_different_id_than_the_first_token():
    order = VocabularyOrder.from_special_tokens(
        6, pad=1, unk=3, decoder_start=0, eos=2, text_token=0
    )
    assert order.rows == (1, 3, 0, 2, 0, 4, 5)
    assert order.vocab_ids()[0] == 4


def test_identity_order_changes_nothing():
    table = torch.randn(5, 2)
    layout = identity_order(5).table_layout
    assert torch.equal(layout.pack([table]), table)
    assert torch.equal(layout.unpack(table)[0], table)
