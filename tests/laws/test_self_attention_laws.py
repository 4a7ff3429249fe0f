"""What all ways of a sequence to look at itself promise, however far places see."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.attention.config import AttentionConfig
from heedful.config.base import types_in
from heedful.layers.self_attention import SelfAttentionConfig
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
BY_PLACE = {"rotary", "relative buckets"}  # nothing for what is pressed
MEMBERS = [
    pair
    for pair in product(SPANS, ATTENTIONS)
    if "compressed" not in pair[0] or pair[1] not in BY_PLACE
]
each_member = pytest.mark.parametrize(("span", "looking"), MEMBERS)


def build(span, looking):
    torch.manual_seed(4)
    attention = AttentionConfig.model_validate(ATTENTIONS[looking]).build(
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


def read(module, inputs, lengths=None, **options):
    """Read from the beginning."""
    rows = len(inputs)
    if lengths is None:
        lengths = torch.full((rows,), inputs.size(1))
    first = torch.zeros(rows, dtype=torch.long)
    return module(inputs, module.initial_state(inputs), first, lengths, **options)


def test_every_span_is_tried():
    assert {span["type"] for span in SPANS.values()} == {
        member.model_fields["type"].default for member in types_in(SelfAttentionConfig)
    }


pieces_of_rows = st.lists(
    st.tuples(*[st.integers(0, 5)] * ROWS), min_size=1, max_size=5
)  # how many places each row has in each piece


@each_member
@given(pieces=pieces_of_rows)
@settings(max_examples=8)
def test_pieces_of_any_sizes_are_read_as_the_whole(span, looking, pieces):
    module = build(span, looking)
    cumulative_log_probs = torch.tensor(pieces).sum(dim=0)
    whole = vectors(ROWS, max(1, int(cumulative_log_probs.max())))
    wanted = read(module, whole, cumulative_log_probs).outputs
    cache, first = module.initial_state(whole), torch.zeros(ROWS, dtype=torch.long)
    for piece in pieces:
        inputs = vectors(ROWS, max(1, *piece))  # past a row's end anything may stand
        for row, length in enumerate(piece):
            inputs[row, :length] = whole[row, first[row] : first[row] + length]
        lengths = torch.tensor(piece)
        found = module(inputs, cache, first, lengths, need_weights=bool(first.sum() % 2))
        for row, length in enumerate(piece):
            place = int(first[row])
            torch.testing.assert_close(
                found.outputs[row, :length], wanted[row, place : place + length]
            )
        cache, first = found.cache, first + lengths


@each_member
def test_places_know_nothing_of_those_after_them(span, looking):
    module, inputs = build(span, looking), vectors(1, 9).requires_grad_()
    for place in (0, 4, 7):
        found = read(module, inputs).outputs[:, place]
        (slopes,) = torch.autograd.grad(found.square().sum(), inputs, allow_unused=True)
        assert (slopes[:, place + 1 :] == 0).all()
        assert slopes.isfinite().all()


@each_member
def test_weights_change_nothing_and_say_where_was_looked(span, looking):
    module, inputs = build(span, looking), vectors(ROWS, 8).requires_grad_()
    slopes = vectors(ROWS, 8)
    results = []
    for need_weights in (False, True):
        found = read(module, inputs, need_weights=need_weights)
        learned = [inputs, *module.parameters()]
        gradients = torch.autograd.grad(found.outputs, learned, slopes, materialize_grads=True)
        results.append([found.outputs, *gradients])
    torch.testing.assert_close(*results)
    weights = found.weights[..., :8]
    assert (weights.triu(1) == 0).all()
    cumulative_log_probs = weights.sum(dim=-1)
    torch.testing.assert_close(cumulative_log_probs, (cumulative_log_probs > 0).double())


@each_member
def test_whoever_sees_nothing_gets_zeros_and_a_finite_slope(span, looking):
    module, inputs = build(span, looking), vectors(ROWS, 7).requires_grad_()
    found = read(module, inputs, need_weights=True)
    blind = found.weights[..., :7].sum(dim=-1) == 0
    assert blind[0].nonzero().flatten().tolist() == list(range(getattr(module, "stride", 1) - 1))
    assert (found.outputs[blind] == 0).all()
    for need_weights in (True, False):
        outputs = read(module, inputs, need_weights=need_weights).outputs
        (slopes,) = torch.autograd.grad(outputs.square().sum(), inputs)
        assert slopes.isfinite().all()


@each_member
def test_rows_of_a_cache_can_be_selected_and_repeated(span, looking):
    module, lengths = build(span, looking), torch.tensor([5, 2, 4])
    cache = read(module, vectors(ROWS, 5), lengths).cache
    more, ones = vectors(ROWS, 1), torch.ones(ROWS, dtype=torch.long)
    rows = torch.tensor([2, 0, 2, 1])
    whole = module(more, cache, lengths, ones).outputs
    picked = module(more[rows], select_rows(cache, rows), lengths[rows], ones[[0] * 4]).outputs
    torch.testing.assert_close(picked, whole[rows])


@each_member
def test_looking_both_ways_rows_are_read_alone_whatever_stands_in_their_padding(span, looking):
    module, lengths = build(span, looking), torch.tensor([8, 3, 1])
    inputs = vectors(ROWS, 8)
    found = module.forward_bidirectional(inputs, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = module.forward_bidirectional(inputs[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(found[row, :length], alone[0])


@each_member
def test_precision_is_kept(span, looking):
    dtype = torch.bfloat16
    module, inputs = build(span, looking).to(dtype), vectors(ROWS, 7).to(dtype)
    for need_weights in (True, False):
        found = read(module, inputs, need_weights=need_weights)
        assert found.outputs.dtype == dtype
        assert found.outputs.isfinite().all()
    assert module.forward_bidirectional(inputs, torch.tensor([7, 3, 1])).dtype == dtype
