import numpy as np
import pytest
import torch

from heedful.attention import attention as attention_module
from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.edits import AttentionEdit, with_edits
from heedful.attention.masks import causal_mask
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.relative_scores import AlibiScore, RotaryScore
from heedful.attention.scores import ScaledDotScore
from heedful.inspection.attention_layers import AttentionLayer, without_words
from heedful.inspection.attention_trace import trace_attention
from heedful.inspection.large_maps import TILE_SIDE, MapPyramid, count_tiles, deferring_weights
from heedful.serving.protocol import ItemError, TraceCall
from heedful.serving.served_models import MAX_TRACES, TraceCache

NUM_TOKENS, NUM_HEADS = 11, 4
EDITS = {
    "none": [],
    "cell of a head": [AttentionEdit(step=7, head=2, set={3: 0.9})],
    "removed position": [AttentionEdit(scale={1: 0.0})],
    "temperature": [AttentionEdit(head=1, alignment={"type": "softmax", "temperature": 0.3})],
    "pattern": [AttentionEdit(alignment={"type": "fixed", "pattern": "diagonal"})],
}


def heads(score=ScaledDotScore, alignment=SoftmaxAlignment, num_kv_heads=None):
    inner = SingleHeadAttention(score(), alignment(), WeightedSumReadout(), role="self")
    sizes = {"query_size": 8, "memory_size": 8, "head_dim": 4}
    return MultiHeadAttention(inner, **sizes, num_heads=NUM_HEADS, num_kv_heads=num_kv_heads)


ATTENTIONS = {
    "softmax": heads,
    "shared keys": lambda: heads(num_kv_heads=2),
    "sparsemax": lambda: heads(alignment=SparsemaxAlignment),
    "heads that differ": lambda: heads(lambda: AlibiScore(NUM_HEADS)),
    "rotary": lambda: heads(lambda: RotaryScore(ScaledDotScore())),
    "one head": lambda: SingleHeadAttention(
        ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout(), role="self"
    ),
}


def attend(attention, *, is_causal=True):
    """Return the record of a call that needs no weights, and its context."""
    torch.manual_seed(3)
    inputs = torch.randn(1, NUM_TOKENS, 8)
    memory = attention.build_memory(inputs, causal_mask(NUM_TOKENS) if is_causal else None)
    state = attention.initial_state(memory) if attention.is_stateful else None
    with torch.inference_mode(), trace_attention(attention) as records:
        context = attention(inputs, memory, state, need_weights=False).context
    return records[0], context


@pytest.fixture
def small_blocks(monkeypatch):
    """Let calls of more than 30 weights attend with a few queries at a time."""
    monkeypatch.setattr(attention_module, "MAX_UNBLOCKED_WEIGHTS", 30)
    monkeypatch.setattr(attention_module, "_BLOCK_WEIGHTS", 3 * NUM_TOKENS * NUM_HEADS)


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_rows_that_are_read_are_those_of_the_call(small_blocks, name, edits):
    torch.manual_seed(1)
    model = with_edits(ATTENTIONS[name]().eval(), EDITS[edits] if name != "one head" else [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "MAX_UNBLOCKED_WEIGHTS", 10**9)
        expected, whole = attend(model)
    with deferring_weights(30):
        record, context = attend(model)
    assert record.deferred is not None
    assert record.weights.isnan().all()
    assert record.weights.shape == expected.weights.shape == (1, *record.deferred.shape)
    torch.testing.assert_close(context, whole)
    for head in range(record.deferred.shape[0]):
        for start, stop in ((0, NUM_TOKENS), (6, 8), (NUM_TOKENS - 1, NUM_TOKENS)):
            rows = torch.from_numpy(record.deferred.read_rows(head, start, stop))
            torch.testing.assert_close(rows, expected.weights[0, head, start:stop])


def test_weights_are_held_where_they_are_few_and_outside_of_deferring():
    attention = heads().eval()
    with deferring_weights(NUM_HEADS * NUM_TOKENS**2):
        assert attend(attention)[0].deferred is None
    assert attend(attention)[0].deferred is None


def draw(*shape, seed=0):
    weights = np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.01), shape[:-1])
    return weights.astype(np.float32)


@pytest.mark.parametrize("is_faint", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (256, 256), (257, 600), (3, 1100)])
def test_byte_of_a_level_is_the_largest_below_it_and_not_zero(shape, is_faint):
    weights = draw(*shape)
    pyramid = MapPyramid.build(lambda start, stop: weights[start:stop], *shape, is_faint=is_faint)
    expected = np.ceil(255 * (np.sqrt(np.sqrt(weights)) if is_faint else weights))
    assert len(pyramid.levels) == len(count_tiles(*shape))
    for level, cells in enumerate(pyramid.levels):
        side = 2**level
        for row, column in np.argwhere(cells >= 0)[:: max(1, cells.size // 50)]:
            below = expected[row * side :, column * side :][:side, :side]
            assert cells[row, column] == min(below.max(), 255)
            assert bool(cells[row, column]) == bool(below.any())
    down, across = count_tiles(*shape)[-1]
    assert (down, across) == (1, 1)


def test_tile_is_padded_with_zeros():
    weights = draw(300, 300)
    pyramid = MapPyramid.build(lambda start, stop: weights[start:stop], 300, 300)
    tile = np.frombuffer(pyramid.tile(0, 1, 0), np.uint8).reshape(TILE_SIDE, TILE_SIDE)
    np.testing.assert_array_equal(tile[:, :44], pyramid.levels[0][:256, 256:])
    assert not tile[:, 44:].any()


def test_held_layer_is_read_by_rows_and_tiles_until_others_take_its_place():
    weights = draw(2, 300, 270)
    tokens = [without_words(list(map(str, range(size)))) for size in (300, 270)]
    traces, layers = TraceCache(), [AttentionLayer("self", *tokens, weights)]
    trace = traces.add(layers)
    row = np.frombuffer(traces.read(TraceCall(trace, 0, 1, 299))["content"], "<f4")
    np.testing.assert_array_equal(row, weights[1, 299])
    tile = traces.read(TraceCall(trace, 0, 1, tile=(1, 0, 0)))["content"]
    assert np.frombuffer(tile, np.uint8).max() == np.ceil(255 * weights[1]).max()
    wrong = [
        TraceCall(trace, 1, 0),
        TraceCall(trace, 0, 2),
        TraceCall(trace, 0, 0, 300),
        TraceCall(trace, 0, 0, tile=(2, 0, 0)),
        TraceCall(trace, 0, 0, tile=(0, 2, 0)),
        TraceCall(trace, 0, 0, tile=(0, 0, 2)),
    ]
    answers = [traces.read(call) for call in wrong]
    assert [answer.status for answer in answers] == [422] * 6
    assert [answer.field for answer in answers] == ["layer", "head", "query", "level", "x", "y"]
    for _ in range(MAX_TRACES):
        traces.add(layers)
    gone = traces.read(TraceCall(trace, 0, 0))
    assert isinstance(gone, ItemError)
    assert gone.status == 404
