"""Decoding step by step equals teacher forcing; padding and other rows have no influence."""

from functools import cache

import pytest
import torch

from heedful.pytree import select_rows
from heedful.tokenization.vocabulary import PAD
from tests import catalogue
from tests.catalogue import SYSTEMS, batch, select_source, store
from tests.shape_checking import unchecked

build = cache(catalogue.build)  # no test here changes a model
each_system = pytest.mark.parametrize("name", SYSTEMS)


@pytest.fixture
def without_shape_checks():
    """The first test has checked the shapes of every call."""
    with unchecked():
        yield


unchecked_shapes = pytest.mark.usefixtures("without_shape_checks")


@each_system
def test_steps_equal_teacher_forcing(name):
    model, examples = build(name), batch(store(), [0, 3, 5, 6])
    whole = model(examples, need_weights=True)
    state = model.initial_state(examples.sources)
    for timestep, tokens in enumerate(examples.decoder_inputs.unbind(dim=1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.log_probs, whole.log_probs[:, timestep])
        torch.testing.assert_close(step.weights, whole.weights[:, timestep])


@unchecked_shapes
@each_system
def test_padding_has_no_influence_in_value_and_gradient(name):
    model, dataset = build(name), store()
    examples, padded_examples = batch(dataset, [1, 4]), batch(dataset, [1, 4], extra=5)
    output = model(examples, need_weights=True)
    padded = model(padded_examples, need_weights=True)
    target_length, source_length = examples.decoder_inputs.size(1), examples.sources.tokens.size(1)
    num_entries = output.log_probs.size(-1)  # fewer with less padding, if it copies
    log_probs = padded.log_probs[:, :target_length, :num_entries]
    torch.testing.assert_close(log_probs, output.log_probs)
    torch.testing.assert_close(padded.weights[:, :target_length, :source_length], output.weights)
    assert (padded.weights[..., source_length:] == 0).all()
    torch.testing.assert_close(
        gradients(model, padded, padded_examples), gradients(model, output, examples)
    )


def gradients(model, output, examples):
    """Return the gradients of the log-likelihood of all real targets."""
    targets = examples.targets.unsqueeze(-1)
    log_probs = output.log_probs.gather(-1, targets)[targets != PAD]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.autograd.grad(log_probs.sum(), parameters, materialize_grads=True)


@unchecked_shapes
@catalogue.each_system
def test_batched_rows_equal_single_rows(name):
    model, dataset = build(name), store()
    rows = list(range(len(dataset)))
    batched = model(batch(dataset, rows)).log_probs
    for row in rows[-3:]:  # one of each length
        single = model(batch(dataset, [row])).log_probs[0]
        torch.testing.assert_close(batched[row, : len(single), : single.size(-1)], single)


@unchecked_shapes
@catalogue.each_system
def test_later_tokens_have_no_influence(name):
    model, examples = build(name), batch(store(), [6])
    changed = examples.decoder_inputs.clone()
    changed[:, 3:] = 4
    before, after = model(examples), model(examples._replace(decoder_inputs=changed))
    torch.testing.assert_close(before.log_probs[:, :3], after.log_probs[:, :3])


@unchecked_shapes
@catalogue.each_system
def test_selected_rows_of_a_state_are_independent(name):
    model, examples = build(name), batch(store(), [2, 5])
    rows, tokens = torch.tensor([1, 1, 0]), torch.tensor([4, 7, 9])
    selected = select_rows(model.initial_state(examples.sources), rows)
    log_probs = model.step(tokens, selected).log_probs
    for index, row in enumerate(rows.tolist()):
        state = model.initial_state(select_source(examples.sources, row))
        single = model.step(tokens[index : index + 1], state).log_probs
        torch.testing.assert_close(log_probs[index : index + 1], single)
