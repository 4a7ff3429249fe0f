"""Hypotheses that share caches continue as if each were decoded alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.acceleration import tuning
from heedful.acceleration.cpu.transformer_stack import BeamSharedState
from heedful.acceleration.registry import accelerate_for_inference
from heedful.models.base import EncoderOutput
from heedful.models.transformer import TransformerDecoderConfig
from heedful.pytree import select_rows, tensors_of

SIZE, VOCAB_SIZE = 8, 11
LENGTHS = torch.tensor([5, 2, 4])


def build():
    torch.manual_seed(1)
    config = TransformerDecoderConfig.model_validate(
        {"type": "transformer", "hidden_size": SIZE, "num_layers": 2}
        | {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}
    )
    decoder = config.build(vocab_size=VOCAB_SIZE, memory_size=SIZE).double().eval()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    states = torch.randn(3, 5, SIZE, dtype=torch.double)
    return decoder.requires_grad_(requires_grad=False), EncoderOutput(states, LENGTHS)


PLAIN, ENCODER_OUTPUT = build()
DECODER = accelerate_for_inference(PLAIN, "cpu")


def initial_state():
    with torch.no_grad():
        state = DECODER.initial_state(ENCODER_OUTPUT)
    assert isinstance(state, BeamSharedState)
    return state


def assert_same_step(step, expected):
    torch.testing.assert_close(step.log_probs, expected.log_probs)
    torch.testing.assert_close(step.weights, expected.weights)


def draw_parents(data, sentence_ids):
    """Rows of the next beam: the same number for each sentence, or any; sentences may leave."""
    beam_size = data.draw(st.integers(1, 3))
    sentences = list(dict.fromkeys(sentence_ids))
    kept = [sentence for sentence in sentences if data.draw(st.integers(0, 3))] or sentences[:1]
    if data.draw(st.booleans()):
        rows = {
            sentence: [row for row, owner in enumerate(sentence_ids) if owner == sentence]
            for sentence in kept
        }
        return [
            data.draw(st.sampled_from(rows[sentence]))
            for sentence in kept
            for _ in range(beam_size)
        ]
    return data.draw(st.lists(st.sampled_from(range(len(sentence_ids))), min_size=1, max_size=6))


@pytest.fixture(params=[1, 2, 16], scope="module")
def max_shared(request):
    """The largest number of hypotheses that may share a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_SHARED_BEAM_SIZE", request.param)
        yield request.param


@given(data=st.data())
@pytest.mark.wide
def test_every_row_continues_as_if_decoded_separately(data, max_shared):
    shared, separate = initial_state(), PLAIN.initial_state(ENCODER_OUTPUT)
    sentence_ids = [0, 1, 2]
    tokens_of = st.integers(4, 10)
    with torch.no_grad():
        for _ in range(data.draw(st.integers(1, 5))):
            size = len(sentence_ids)
            tokens = torch.tensor(data.draw(st.lists(tokens_of, min_size=size, max_size=size)))
            step, expected = DECODER.step(tokens, shared), PLAIN.step(tokens, separate)
            assert size <= max_shared * step.state.num_sentences
            assert_same_step(step, expected)
            rows = draw_parents(data, sentence_ids)
            sentence_ids = [sentence_ids[row] for row in rows]
            parents = torch.tensor(rows)
            shared = select_rows(step.state, parents)
            separate = select_rows(expected.state, parents)
    tokens = torch.full((len(sentence_ids),), 5)
    with torch.enable_grad():  # the plain layers continue from a shared state
        assert_same_step(DECODER.step(tokens, shared), PLAIN.step(tokens, separate))


@torch.no_grad()
def test_step_does_not_change_state():
    state = initial_state()
    for _ in range(3):  # until there is spare capacity behind the cache
        state = DECODER.step(torch.tensor([4, 5, 6]), state).state
    state = select_rows(state, torch.tensor([0, 0, 1, 1, 2, 2]))
    before = [tensor.clone() for tensor in tensors_of(state)]
    first = DECODER.step(torch.tensor([4, 5, 6, 7, 8, 9]), state)
    other = DECODER.step(torch.tensor([9, 8, 7, 6, 5, 4]), state)
    again = DECODER.step(torch.tensor([4, 5, 6, 7, 8, 9]), state)
    for tensor, copied in zip(tensors_of(state), before, strict=True):
        assert torch.equal(tensor, copied)
    torch.testing.assert_close(first.log_probs, again.log_probs)
    assert not torch.allclose(first.log_probs, other.log_probs)


@torch.no_grad()
def test_keys_that_three_hypotheses_share_are_transposed():
    state = select_rows(initial_state(), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2]))
    for _ in range(3):
        state = DECODER.step(torch.arange(9), state).state
    keys = [state.memories[0].keys, state.kv_caches[0].keys]
    assert all(part.stride(-2) == 1 for part in keys)


@torch.no_grad()
def test_reordering_a_beam_does_not_copy_caches():
    state = DECODER.step(torch.tensor([4, 5, 6]), initial_state()).state
    state = select_rows(state, torch.tensor([0, 0, 1, 1, 2, 2]))
    state = DECODER.step(torch.tensor([4, 5, 6, 7, 8, 9]), state).state
    reordered = select_rows(state, torch.tensor([1, 1, 2, 3, 5, 4])).regroup()
    assert reordered.memories is state.memories
    assert reordered.kv_caches is state.kv_caches
    assert reordered.num_sentences == 3
    fewer = select_rows(state, torch.tensor([0, 1, 4, 4])).regroup()
    assert fewer.num_sentences == 2
    assert fewer.sentence_index.tolist() == [0, 0, 1, 1]
    uneven = select_rows(state, torch.tensor([0, 1, 4])).regroup()
    assert uneven.num_sentences == 3
    assert uneven.sentence_index.tolist() == [0, 1, 2]
    assert uneven.visible is None
    assert uneven.kv_caches[0].values.size(-2) == 2  # only the visible positions are kept


@pytest.mark.parametrize("reason", ["training", "gradients", "not accelerated"])
def test_caches_not_shared_where_parameters_may_change(reason):
    decoder = PLAIN if reason == "not accelerated" else accelerate_for_inference(PLAIN, "cpu")
    decoder.train(reason == "training")
    with torch.set_grad_enabled(reason == "gradients"):
        state = decoder.initial_state(ENCODER_OUTPUT)
    assert not isinstance(state, BeamSharedState)
    PLAIN.eval()
