"""Decoding with static caches equals decoding with the plain decoder.

The kernels run on a GPU, or in Triton's interpreter where there is none.
"""

import copy

import pytest
import torch
from torch import nn

from heedful.acceleration import tuning
from heedful.acceleration.cuda import captured_models, static_cache, token_choice
from heedful.acceleration.cuda.static_cache import StaticCacheDecoder, StaticCacheState
from heedful.acceleration.registry import FOR_INFERENCE, accelerate
from heedful.data.text.batching import SourceBatch
from heedful.models.base import EncoderOutput
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.transformer import TransformerDecoderConfig
from heedful.pytree import select_rows
from heedful.search import BeamSearchOptions, LengthPenalty
from heedful.search.logits_processors import MinLength
from heedful.tokenization.vocabulary import EOS
from tests.unit.acceleration.cpu.standard_layers import OTHER, STANDARD

pytest.importorskip("triton", reason="Triton is not installed")

from heedful.acceleration.triton.decoding_step import (
    add_and_normalize,
    attend_to_cache,
    attend_to_memory,
)

pytestmark = pytest.mark.extras

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZE, VOCAB_SIZE = 12, 11
LENGTHS = torch.tensor([5, 2], device=DEVICE)
HEADS = {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Run on this device, with tiles and capacities that few positions exceed."""
    monkeypatch.setattr(static_cache, "STATIC_CACHE_DEVICE_TYPE", DEVICE.type)
    monkeypatch.setattr(tuning, "TRITON_DECODING_TILE", (4, 1))
    monkeypatch.setattr(tuning, "STATIC_CACHE_CAPACITY", 1)


def build_pair(settings, dtype=torch.float32):
    """Return a decoder with random parameters, and the same one with static caches."""
    config = TransformerDecoderConfig.model_validate(
        {"type": "transformer", "hidden_size": SIZE, "num_layers": 2, "dropout": 0.3}
        | HEADS
        | settings
    )
    decoder = config.build(vocab_size=VOCAB_SIZE, memory_size=SIZE).eval().to(DEVICE, dtype)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    cached = copy.copy(decoder)
    cached.__class__ = StaticCacheDecoder
    return decoder, cached


def encode(dtype=torch.float32):
    states = torch.randn(len(LENGTHS), 5, SIZE).to(DEVICE, dtype)
    return EncoderOutput(states, LENGTHS)


def draw_tokens(num_rows):
    return torch.randint(4, VOCAB_SIZE, (num_rows,)).to(DEVICE)


def check_steps(decoder, cached, orders, tolerance=1e-5):
    """Decode in parallel, with rows selected before each step."""
    encoded = encode(next(decoder.parameters()).dtype)
    states = [decoder.initial_state(encoded), cached.initial_state(encoded)]
    assert isinstance(states[1], StaticCacheState)
    for rows in orders:
        if rows is not None:
            states = [select_rows(state, torch.tensor(rows, device=DEVICE)) for state in states]
        tokens = draw_tokens(len(LENGTHS) if rows is None else len(rows))
        expected, actual = (
            model.step(tokens, state)
            for model, state in zip((decoder, cached), states, strict=True)
        )
        close = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
        torch.testing.assert_close(actual.log_probs, expected.log_probs, **close)
        torch.testing.assert_close(actual.weights, expected.weights, **close)
        states = [expected.state, actual.state]
    return states


def build_models():
    """Return a Transformer, and the same one with static caches and captured steps."""
    layers = {"type": "transformer", "hidden_size": 4, "num_layers": 1, **HEADS}
    layers["feed_forward"] = [{"intermediate_size": 8}]
    config = EncoderDecoderConfig.model_validate({"encoder": layers, "decoder": layers})
    model = config.build(source_vocab_size=9, target_vocab_size=9).eval().to(DEVICE)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model, accelerate(model, torch.device("cuda"))


ORDERS = {
    "greedy": [None] * 2,
    "beam": [[0, 1], [0, 0, 1], [2, 1, 1], [1, 2]],
}


@pytest.mark.parametrize("settings", [STANDARD[index] for index in (0, 3, 5, 6, 8, 9)], ids=str)
@torch.inference_mode()
def test_steps_with_static_caches_equal_plain_steps(settings):
    check_steps(*build_pair(settings), ORDERS["greedy"])


@torch.inference_mode()
def test_reordered_rows_continue_as_with_plain_caches():
    check_steps(*build_pair({}), ORDERS["beam"])


@pytest.mark.parametrize(
    "settings",
    [
        {"positional_encoding": None},
        {"positional_encoding": {"type": "learned"}},
        {"scale_embeddings": True},
        {"embedding_norm": True},
    ],
    ids=str,
)
@torch.inference_mode()
def test_embeddings_are_those_of_the_plain_decoder(settings, monkeypatch):
    monkeypatch.setattr(tuning, "NUM_DEVICE_POSITIONS", 1)
    check_steps(*build_pair(settings), ORDERS["greedy"])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.15), (torch.float16, 0.02)])
@torch.inference_mode()
def test_narrow_parameters_return_steps_within_rounding(dtype, tolerance):
    if DEVICE.type == "cpu" and dtype == torch.float16:
        pytest.skip("half precision is for GPUs")
    check_steps(*build_pair({}, dtype), ORDERS["greedy"], tolerance)


@torch.inference_mode()
def test_state_can_be_continued_more_than_once():
    decoder, cached = build_pair({})
    states = check_steps(decoder, cached, [None])
    first, second = draw_tokens(len(LENGTHS)), draw_tokens(len(LENGTHS))
    branches = [
        [(model, model.step(tokens, state)) for tokens in (first, second)]
        for model, state in zip((decoder, cached), states, strict=True)
    ]
    tokens = draw_tokens(len(LENGTHS))
    for branch in zip(*branches, strict=True):
        expected, actual = (model.step(tokens, output.state) for model, output in branch)
        torch.testing.assert_close(actual.log_probs, expected.log_probs)


@torch.inference_mode()
def test_caches_not_copied_when_the_first_continuation_was_dropped(monkeypatch):
    monkeypatch.setattr(tuning, "STATIC_CACHE_CAPACITY", 2)
    _, cached = build_pair({})
    state = cached.step(draw_tokens(2), cached.initial_state(encode())).state
    for _ in range(2):
        assert cached.step(draw_tokens(2), state).state.cache is state.cache


@pytest.mark.parametrize("reason", ["hook", "gradient"])
def test_search_continues_with_plain_steps(reason):
    """With a hook that was added on the way, or where gradients are recorded."""
    decoder, cached = build_pair({})
    with torch.no_grad():
        states = check_steps(decoder, cached, ORDERS["beam"][:3])
    tokens, calls = draw_tokens(3), []
    if reason == "hook":
        handle = cached.stack.layers[0].register_forward_hook(lambda *args: calls.append(0))
    with torch.no_grad() if reason == "hook" else torch.enable_grad():
        actual = cached.step(tokens, states[1])
        assert calls or reason == "gradient"
        if reason == "hook":
            handle.remove()
        expected = decoder.step(tokens, states[0])
    torch.testing.assert_close(actual.log_probs, expected.log_probs)
    torch.testing.assert_close(actual.weights, expected.weights)


@pytest.mark.parametrize("settings", OTHER.values(), ids=OTHER)
def test_other_layers_decoded_as_before(settings):
    decoder, _ = build_pair(settings)
    assert type(accelerate(decoder, torch.device("cuda"))) is not StaticCacheDecoder


def test_standard_decoders_on_a_gpu_have_static_caches():
    decoder, _ = build_pair({})
    assert type(accelerate(decoder, torch.device("cuda"))) is StaticCacheDecoder
    assert StaticCacheDecoder in [entry.replacement for entry in FOR_INFERENCE]


@pytest.mark.parametrize(("beam_size", "num_repeats"), [(1, 3), (2, 1)])
def test_captured_search_with_static_caches_equals_plain_search(
    beam_size, num_repeats, monkeypatch
):
    """Also if the batch is halved when sentences have ended."""
    monkeypatch.setattr(captured_models, "GRAPH_DEVICE_TYPE", DEVICE.type)
    monkeypatch.setattr(token_choice, "TRITON_DEVICE_TYPE", DEVICE.type)
    monkeypatch.setattr(tuning, "STEPS_PER_CHECK", 1)
    monkeypatch.setattr(tuning, "MIN_COMPACTED_ROWS", 1)
    monkeypatch.setattr(tuning, "NUM_PLAIN_BATCHES", 0)
    model, captured = build_models()
    sources = SourceBatch(
        torch.tensor([[4, 5, 6, 7], [5, 7, 8, 0], [8, 4, 0, 0], [7, 0, 0, 0]], device=DEVICE),
        torch.tensor([4, 3, 2, 1], device=DEVICE),
    )
    limits = torch.tensor([3, 1, 1, 2], device=DEVICE)
    options = BeamSearchOptions(processors=(MinLength(limits // 2, eos=EOS),))
    expected, *searches = (
        searched.search(
            sources,
            beam_size=beam_size,
            max_lengths=limits,
            length_penalty=LengthPenalty(0.6),
            options=options,
        )
        for searched in (model, *[captured] * num_repeats)
    )
    for actual in searches:
        for hypotheses, others in zip(actual, expected, strict=True):
            assert [item.tokens for item in hypotheses] == [item.tokens for item in others]
            for hypothesis, other in zip(hypotheses, others, strict=True):
                assert hypothesis.score == pytest.approx(other.score, rel=1e-4)
                assert hypothesis.weights == pytest.approx(other.weights, abs=1e-5)
    (chain,) = captured._chain_cache._chains.values()
    if beam_size == 1:
        assert {step.num_rows for step in chain.searches[1]._steps} == {4, 2, 1}


def test_row_without_visible_positions_has_zero_context_and_weights():
    queries, keys = torch.randn(2, 6, device=DEVICE), torch.randn(2, 2, 5, 3, device=DEVICE)
    mask = torch.tensor([[False] * 5, [True] * 5], device=DEVICE)
    rows = torch.arange(2, device=DEVICE)
    context, weights = attend_to_memory(queries, keys, keys, mask, rows, 1.0, need_weights=True)
    assert not context[0].any()
    assert not weights[0].any()
    torch.testing.assert_close(weights[1].sum(-1), torch.ones(2, device=DEVICE))


def test_padding_is_not_read():
    queries, keys = torch.randn(1, 6, device=DEVICE), torch.randn(1, 2, 5, 3, device=DEVICE)
    mask, rows = torch.arange(5, device=DEVICE)[None] < 3, torch.zeros(1, dtype=torch.long)
    expected, _ = attend_to_memory(queries, keys, keys, mask, rows.to(DEVICE), 1.0)
    keys[:, :, 3:] = torch.nan
    actual, _ = attend_to_memory(queries, keys, keys, mask, rows.to(DEVICE), 1.0)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("num_cached", [0, 1, 6])
def test_appended_position_is_attended_to_and_stored(num_cached):
    num_heads, head_dim = 2, 3
    projected = torch.randn(2, 3 * num_heads * head_dim, device=DEVICE)
    keys, values = torch.randn(2, 2, num_heads, 7, head_dim, device=DEVICE)
    context = attend_to_cache(projected, keys, values, None, num_cached, 0.5)
    query, key, value = projected.view(2, 3, num_heads, head_dim).unbind(1)
    assert torch.equal(keys[:, :, num_cached], key)
    assert torch.equal(values[:, :, num_cached], value)
    seen = slice(num_cached + 1)
    scores = 0.5 * torch.einsum("rhd,rhpd->rhp", query, keys[:, :, seen])
    expected = torch.einsum("rhp,rhpd->rhd", scores.softmax(-1), values[:, :, seen])
    torch.testing.assert_close(context, expected.flatten(1))


@pytest.mark.parametrize("norm", [nn.LayerNorm(5), nn.LayerNorm(5, bias=False), nn.RMSNorm(5)])
def test_residual_norm_equals_that_of_the_sum(norm):
    norm = norm.to(DEVICE)
    nn.init.normal_(norm.weight)
    inputs, updates = torch.randn(2, 3, 5, device=DEVICE)
    sums, outputs = add_and_normalize(inputs, updates, norm)
    assert torch.equal(sums, inputs + updates)
    torch.testing.assert_close(outputs, norm(inputs + updates))
