"""Families: hypotheses that have everything in common go on as if they had nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.acceleration import beam_cache
from heedful.acceleration.beam_cache import BeamSharedState
from heedful.acceleration.packed_weights import assume_constant_parameters
from heedful.models.base import EncoderOutput
from heedful.models.transformer import TransformerDecoderConfig
from heedful.pytree import SharedRows, select_rows, tensors_of

SIZE, WORDS = 8, 11
LENGTHS = torch.tensor([5, 2, 4])


def make():
    torch.manual_seed(1)
    config = TransformerDecoderConfig.model_validate(
        {"type": "transformer", "hidden_size": SIZE, "num_layers": 2}
        | {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}
    )
    decoder = config.build(vocab_size=WORDS, memory_size=SIZE).double().eval()
    for weight in decoder.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    states = torch.randn(3, 5, SIZE, dtype=torch.double)
    return decoder, EncoderOutput(states, LENGTHS, states[:, 0])


DECODER, ENCODED = make()


def plainly(tokens, state):
    """A step by layers that know nothing of families."""
    with torch.enable_grad():
        return DECODER.step(tokens, state)


def begin():
    with torch.no_grad(), assume_constant_parameters():
        together = DECODER.initial_state(ENCODED)
    assert isinstance(together, BeamSharedState)
    return together, DECODER.initial_state(ENCODED)


def assert_alike(one, other):
    torch.testing.assert_close(one.log_probs, other.log_probs.detach())
    torch.testing.assert_close(one.weights, other.weights.detach())


def rows_of(data, owners):
    """A next generation: as many of each sentence, or as it comes; some sentences may leave."""
    width = data.draw(st.integers(1, 3))
    stay = [owner for owner in dict.fromkeys(owners) if data.draw(st.integers(0, 3))] or owners[:1]
    if data.draw(st.booleans()):
        own = {owner: [row for row, each in enumerate(owners) if each == owner] for owner in stay}
        return [data.draw(st.sampled_from(own[owner])) for owner in own for _ in range(width)]
    return data.draw(st.lists(st.sampled_from(range(len(owners))), min_size=1, max_size=6))


@pytest.fixture(params=[1, 2, 16], scope="module")
def most_siblings(request):
    """As many rows as a family may have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_cache, "MAX_SHARED_BEAM_SIZE", request.param)
        yield request.param


@settings(max_examples=30)
@given(data=st.data())
def test_whatever_rows_are_selected_each_goes_on_as_it_would_alone(data, most_siblings):
    together, apart = begin()
    owners = [0, 1, 2]
    with assume_constant_parameters():
        for _ in range(data.draw(st.integers(1, 5))):
            tokens = torch.tensor(
                data.draw(st.lists(st.integers(4, 10), min_size=len(owners), max_size=len(owners)))
            )
            with torch.no_grad():
                found = DECODER.step(tokens, together)
            assert len(owners) <= most_siblings * found.state.num_sentences
            wanted = plainly(tokens, apart)
            assert_alike(found, wanted)
            rows = rows_of(data, owners)
            owners = [owners[row] for row in rows]
            chosen = torch.tensor(rows)
            together, apart = select_rows(found.state, chosen), select_rows(wanted.state, chosen)
    # Layers that know nothing of families go on from there.
    tokens = torch.full((len(owners),), 5)
    assert_alike(plainly(tokens, together), plainly(tokens, apart))


def test_a_step_changes_nothing_in_the_state_it_was_given():
    together, _ = begin()
    tokens, rows = torch.tensor([4, 5, 6]), torch.tensor([0, 0, 1, 1, 2, 2])
    with torch.no_grad(), assume_constant_parameters():
        for _ in range(3):  # until there is room behind what is held
            together = DECODER.step(tokens, together).state
        both = select_rows(together, rows)
        before = [leaf.clone() for leaf in tensors_of(both)]
        first = DECODER.step(torch.tensor([4, 5, 6, 7, 8, 9]), both)
        again = DECODER.step(torch.tensor([9, 8, 7, 6, 5, 4]), both)
        third = DECODER.step(torch.tensor([4, 5, 6, 7, 8, 9]), both)
    for leaf, was in zip(tensors_of(both), before, strict=True):
        assert torch.equal(leaf, was)
    torch.testing.assert_close(first.log_probs, third.log_probs)
    assert not torch.allclose(first.log_probs, again.log_probs)


def test_a_beam_is_pruned_without_moving_what_is_held():
    together, _ = begin()
    with torch.no_grad(), assume_constant_parameters():
        state = DECODER.step(torch.tensor([4, 5, 6]), together).state
        state = select_rows(state, torch.tensor([0, 0, 1, 1, 2, 2]))
        state = DECODER.step(torch.tensor([4, 5, 6, 7, 8, 9]), state).state
        pruned = select_rows(state, torch.tensor([1, 1, 2, 3, 5, 4])).regroup()
    assert pruned.caches is state.caches
    assert pruned.num_sentences == 3
    left = select_rows(state, torch.tensor([0, 1, 4, 4])).regroup()
    assert left.num_sentences == 2
    assert left.shared_rows.row_index.tolist() == [0, 0, 1, 1]
    uneven = select_rows(state, torch.tensor([0, 1, 4])).regroup()
    assert uneven.num_sentences == 3
    assert uneven.shared_rows.row_index.tolist() == [0, 1, 2]
    assert uneven.visible is None
    assert uneven.caches.kv_cache[0].values.size(-2) == 2  # nobody holds what it has not come by


@pytest.mark.parametrize("why", ["training", "no rest", "grad"])
def test_whoever_may_learn_has_no_families(why):
    DECODER.train(why == "training")
    with torch.set_grad_enabled(why == "grad"):
        if why == "no rest":
            state = DECODER.initial_state(ENCODED)
        else:
            with assume_constant_parameters():
                state = DECODER.initial_state(ENCODED)
    DECODER.eval()
    assert not isinstance(state, BeamSharedState)


def test_what_is_shared_is_named_anew_and_not_moved():
    held = torch.arange(3.0)
    shared = SharedRows((held,), torch.tensor([0, 1, 2]))
    chosen = select_rows((shared, torch.tensor([7, 8, 9])), torch.tensor([2, 0]))
    assert chosen[0].value[0] is held
    assert chosen[0].row_index.tolist() == [2, 0]
    assert chosen[1].tolist() == [9, 7]
