"""Invariants of every type of self-attention."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.config.base import types_in
from heedful.layers.self_attention import BatchPositions, SelfAttentionConfig
from heedful.pytree import select_rows

ROWS, SIZE = 3, 8
SPANS = {
    "full": {"type": "full"},
    "blocks of 1": {"type": "block", "block_size": 1},
    "blocks of 3": {"type": "block", "block_size": 3},
    "compressed by 1": {"type": "compressed", "stride": 1},
    "compressed by 3": {"type": "compressed", "stride": 3},
}
ATTENTIONS = {
    "heads": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}},
    "one group": {
        "score": {"type": "scaled-dot"},
        "multi_head": {"num_heads": 4, "num_kv_heads": 1, "head_dim": 3},
    },
    "no heads": {"score": {"type": "scaled-dot"}},
    "additive": {"score": {"type": "additive", "hidden_size": 5}, "multi_head": {"num_heads": 2}},
    "sparsemax": {
        "score": {"type": "scaled-dot"},
        "alignment": {"type": "sparsemax"},
        "multi_head": {"num_heads": 2},
    },
    "rotary": {"score": {"type": "rotary"}, "multi_head": {"num_heads": 2}},
    "relative buckets": {
        "score": {"type": "relative-position-bias"},
        "multi_head": {"num_heads": 2},
    },
}
POSITIONAL = {"rotary", "relative buckets"}  # not supported by compressed attention
MEMBERS = [
    pair
    for pair in product(SPANS, ATTENTIONS)
    if "compressed" not in pair[0] or pair[1] not in POSITIONAL
]
all_members = pytest.mark.parametrize(("span", "attention_name"), MEMBERS)


def build(span, attention_name):
    torch.manual_seed(4)
    attention = AttentionConfig.model_validate(ATTENTIONS[attention_name]).build(
        query_size=SIZE, memory_size=SIZE
    )
    config = TypeAdapter(SelfAttentionConfig).validate_python(SPANS[span])
    module = config.build(attention, size=SIZE).double().eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(2)
    return module


def vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


def run(module, inputs, lengths=None, **options):
    """Run from an empty cache."""
    rows = len(inputs)
    if lengths is None:
        lengths = torch.full((rows,), inputs.size(1))
    start_positions = torch.zeros(rows, dtype=torch.long)
    positions = BatchPositions.from_lengths(inputs, start_positions, lengths)
    return module(inputs, module.initial_state(inputs), positions, **options)


def test_every_self_attention_type_is_tested():
    assert {span["type"] for span in SPANS.values()} == {
        member.model_fields["type"].default for member in types_in(SelfAttentionConfig)
    }


pieces_of_rows = st.lists(
    st.tuples(*[st.integers(0, 5)] * ROWS), min_size=1, max_size=5
)  # length of each row in each chunk


@all_members
@given(pieces=pieces_of_rows)
@settings(max_examples=8)
def test_cached_chunks_match_whole_sequence(span, attention_name, pieces):
    module = build(span, attention_name)
    totals = torch.tensor(pieces).sum(dim=0)
    whole = vectors(ROWS, max(1, int(totals.max())))
    expected = run(module, whole, totals).outputs
    cache, start_positions = module.initial_state(whole), torch.zeros(ROWS, dtype=torch.long)
    for piece in pieces:
        inputs = vectors(ROWS, max(1, *piece))  # padding may contain anything
        for row, length in enumerate(piece):
            inputs[row, :length] = whole[row, start_positions[row] : start_positions[row] + length]
        lengths = torch.tensor(piece)
        positions = BatchPositions.from_lengths(inputs, start_positions, lengths)
        output = module(inputs, cache, positions, need_weights=bool(start_positions.sum() % 2))
        for row, length in enumerate(piece):
            position = int(start_positions[row])
            torch.testing.assert_close(
                output.outputs[row, :length], expected[row, position : position + length]
            )
        cache, start_positions = output.cache, start_positions + lengths


@all_members
def test_outputs_do_not_depend_on_later_positions(span, attention_name):
    module, inputs = build(span, attention_name), vectors(1, 9).requires_grad_()
    for position in (0, 4, 7):
        output = run(module, inputs).outputs[:, position]
        (gradient,) = torch.autograd.grad(output.square().sum(), inputs, allow_unused=True)
        assert (gradient[:, position + 1 :] == 0).all()
        assert gradient.isfinite().all()


@all_members
def test_need_weights_does_not_change_outputs(span, attention_name):
    module, inputs = build(span, attention_name), vectors(ROWS, 8).requires_grad_()
    grad_outputs = vectors(ROWS, 8)
    results = []
    for need_weights in (False, True):
        output = run(module, inputs, need_weights=need_weights)
        parameters = [inputs, *module.parameters()]
        gradients = torch.autograd.grad(
            output.outputs, parameters, grad_outputs, materialize_grads=True
        )
        results.append([output.outputs, *gradients])
    torch.testing.assert_close(*results)
    weights = output.weights[..., :8]
    assert (weights.triu(1) == 0).all()
    totals = weights.sum(dim=-1)
    torch.testing.assert_close(totals, (totals > 0).double())


@all_members
def test_queries_without_visible_keys_return_zeros_and_finite_gradient(span, attention_name):
    module, inputs = build(span, attention_name), vectors(ROWS, 7).requires_grad_()
    output = run(module, inputs, need_weights=True)
    is_blind = output.weights[..., :7].sum(dim=-1) == 0
    assert is_blind[0].nonzero().flatten().tolist() == list(range(getattr(module, "stride", 1) - 1))
    assert (output.outputs[is_blind] == 0).all()
    for need_weights in (True, False):
        outputs = run(module, inputs, need_weights=need_weights).outputs
        (gradient,) = torch.autograd.grad(outputs.square().sum(), inputs)
        assert gradient.isfinite().all()


@all_members
def test_cache_rows_can_be_selected_and_repeated(span, attention_name):
    module, lengths = build(span, attention_name), torch.tensor([5, 2, 4])
    cache = run(module, vectors(ROWS, 5), lengths).cache
    next_inputs, ones = vectors(ROWS, 1), torch.ones(ROWS, dtype=torch.long)
    rows = torch.tensor([2, 0, 2, 1])
    positions = BatchPositions.from_lengths(next_inputs, lengths, ones)
    whole = module(next_inputs, cache, positions).outputs
    selected = module(next_inputs[rows], *select_rows((cache, positions), rows)).outputs
    torch.testing.assert_close(selected, whole[rows])


@all_members
def test_bidirectional_rows_match_unpadded_rows(span, attention_name):
    module, lengths = build(span, attention_name), torch.tensor([8, 3, 1])
    inputs = vectors(ROWS, 8)
    mask = padding_mask(lengths, 8).squeeze(1)
    output = module.forward_bidirectional(inputs, mask)
    for row, length in enumerate(lengths.tolist()):
        single = module.forward_bidirectional(
            inputs[row : row + 1, :length], mask[row : row + 1, :length]
        )
        torch.testing.assert_close(output[row, :length], single[0])


@all_members
def test_self_attention_keeps_dtype(span, attention_name):
    dtype = torch.bfloat16
    module, inputs = build(span, attention_name).to(dtype), vectors(ROWS, 7).to(dtype)
    for need_weights in (True, False):
        output = run(module, inputs, need_weights=need_weights)
        assert output.outputs.dtype == dtype
        assert output.outputs.isfinite().all()
    mask = padding_mask(torch.tensor([7, 3, 1]), 7).squeeze(1)
    assert module.forward_bidirectional(inputs, mask).dtype == dtype
