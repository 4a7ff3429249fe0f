"""The decoding path is the training path, repeated; padding and neighbours change nothing."""

import pytest
import torch

from heedful.pytree import select_rows
from tests.catalogue import SYSTEMS, batch, build, select_source, store
from tests.shape_checking import unchecked

each_system = pytest.mark.parametrize("name", SYSTEMS)


@pytest.fixture
def without_shape_checks():
    """The first test has checked the shapes of every call; the others need not again."""
    with unchecked():
        yield


quickly = pytest.mark.usefixtures("without_shape_checks")


@each_system
def test_steps_equal_teacher_forcing(name):
    model, examples = build(name), batch(store(), [0, 3, 5, 6])
    whole = model(examples, need_weights=True)
    state = model.initial_state(examples.sources)
    for time, tokens in enumerate(examples.decoder_inputs.unbind(dim=1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.log_probs, whole.log_probs[:, time])
        torch.testing.assert_close(step.weights, whole.weights[:, time])


@quickly
@each_system
def test_padding_has_no_influence(name):
    model, corpus = build(name), store()
    tight, loose = batch(corpus, [1, 4]), batch(corpus, [1, 4], extra=5)
    narrow, wide = (model(each, need_weights=True) for each in (tight, loose))
    times, places = tight.decoder_inputs.size(1), tight.sources.tokens.size(1)
    torch.testing.assert_close(wide.log_probs[:, :times], narrow.log_probs)
    torch.testing.assert_close(wide.weights[:, :times, :places], narrow.weights)
    assert (wide.weights[..., places:] == 0).all()


@quickly
@each_system
def test_batched_rows_equal_single_rows(name):
    model, corpus = build(name), store()
    rows = list(range(len(corpus)))
    together = model(batch(corpus, rows)).log_probs
    for row in rows:
        alone = model(batch(corpus, [row])).log_probs[0]
        torch.testing.assert_close(together[row, : len(alone)], alone)


@quickly
@each_system
def test_later_tokens_have_no_influence(name):
    model, examples = build(name), batch(store(), [6])
    changed = examples.decoder_inputs.clone()
    changed[:, 3:] = 4
    before, after = model(examples), model(examples._replace(decoder_inputs=changed))
    torch.testing.assert_close(before.log_probs[:, :3], after.log_probs[:, :3])


@quickly
@each_system
def test_selected_rows_of_a_state_are_independent(name):
    model, examples = build(name), batch(store(), [2, 5])
    rows = torch.tensor([1, 1, 0])
    picked = select_rows(model.initial_state(examples.sources), rows)
    tokens = torch.tensor([4, 7, 9])
    together = model.step(tokens, picked).log_probs
    for place, row in enumerate(rows.tolist()):
        alone = model.step(
            tokens[place : place + 1], model.initial_state(select_source(examples.sources, row))
        )
        torch.testing.assert_close(together[place : place + 1], alone.log_probs)
