import pytest
import torch
from torch import nn

from heedful.errors import ConfigError
from heedful.models.bytenet import DilatedDecoderConfig, DilatedEncoderConfig
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.pytree import select_rows
from tests.catalogue import VOCABULARY, batch, select_source, store

SETTINGS = {
    "as in the paper": {"dilations": (1, 2), "num_repeats": 2},
    "an even kernel": {"kernel_size": 2, "dilations": (1, 3)},
    "a kernel of one": {"kernel_size": 1, "dilations": (1,)},
}
each_setting = pytest.mark.parametrize("name", SETTINGS)


def decoder(memory_size=6, **settings):
    config = DilatedDecoderConfig.model_validate({"hidden_size": 3} | settings)
    return config.build(vocab_size=VOCABULARY, memory_size=memory_size)


def system(name="as in the paper", factor=1.2):
    """An untrained model with parameters large enough to make its outputs differ."""
    encoder = DilatedEncoderConfig(hidden_size=3, dilations=(1, 2), length_factor=factor)
    module = encoder.build(vocab_size=VOCABULARY)
    return with_large_parameters(EncoderDecoderModel(module, decoder(**SETTINGS[name])))


def with_large_parameters(model):
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.7)
    return model.double().eval()


@each_setting
@pytest.mark.parametrize("factor", [1.0, 1.2, 2.0])
def test_steps_match_whole_sequence(name, factor):
    model, examples = system(name, factor), batch(store(), [0, 3, 5, 6])
    whole, state = model(examples, need_weights=True), model.initial_state(examples.sources)
    for time, tokens in enumerate(examples.decoder_inputs.unbind(dim=1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.log_probs, whole.log_probs[:, time])
        torch.testing.assert_close(step.weights, whole.weights[:, time])


@each_setting
def test_padding_and_other_rows_have_no_influence_in_value_and_gradient(name):
    model, corpus = system(name), store()
    weights = list(model.parameters())

    def read(examples):
        log_probs = model(examples).log_probs
        target_log_probs = log_probs.gather(-1, examples.targets.unsqueeze(-1)).squeeze(-1)
        loss = target_log_probs.masked_fill(examples.targets == 0, 0).sum()
        return log_probs, torch.autograd.grad(loss, weights)

    rows = [1, 4, 6]
    (tight, tight_gradients), (loose, loose_gradients) = (
        read(batch(corpus, rows, extra=extra)) for extra in (0, 5)
    )
    torch.testing.assert_close(loose[:, : tight.size(1)], tight)
    torch.testing.assert_close(loose_gradients, tight_gradients)
    alone = [read(batch(corpus, [row])) for row in rows]
    for row, (log_probs, _) in enumerate(alone):
        torch.testing.assert_close(tight[row, : log_probs.size(1)], log_probs[0])
    for whole, *parts in zip(tight_gradients, *(gradients for _, gradients in alone), strict=True):
        torch.testing.assert_close(whole, sum(parts))


@each_setting
def test_output_depends_on_its_receptive_field_only(name):
    model, examples = system(name), batch(store(), [6])
    vectors = []
    hook = model.decoder.embedding.register_forward_hook(
        lambda part, inputs, outputs: vectors.append(outputs) or outputs
    )
    log_probs = model(examples).log_probs
    hook.remove()
    field = model.decoder.stack.receptive_field
    for time in range(log_probs.size(1)):
        (gradient,) = torch.autograd.grad(
            log_probs[0, time].sin().sum(), vectors, retain_graph=True
        )
        influential = (gradient[0].abs().sum(dim=-1) > 0).nonzero().flatten().tolist()
        assert max(influential) == time
        assert min(influential) >= time - field + 1
        assert field == 1 or time == 0 or min(influential) < time


@each_setting
def test_rows_of_state_are_independent(name):
    model, examples = system(name), batch(store(), [2, 5])
    rows, first = torch.tensor([1, 1, 0]), torch.tensor([4, 5])
    state = model.step(first, model.initial_state(examples.sources)).state
    tokens = torch.tensor([4, 7, 9])
    together = model.step(tokens, select_rows(state, rows)).log_probs
    for position, row in enumerate(rows.tolist()):
        row_state = model.step(
            first[row : row + 1], model.initial_state(select_source(examples.sources, row))
        ).state
        alone = model.step(tokens[position : position + 1], row_state)
        torch.testing.assert_close(together[position : position + 1], alone.log_probs)


def test_weights_are_zero_or_none():
    model, examples = system(), batch(store(), [2, 5])
    whole = model(examples, need_weights=True)
    assert whole.weights.shape == (*examples.decoder_inputs.shape, examples.sources.tokens.size(1))
    assert (whole.weights == 0).all()
    assert model(examples).weights is None


def test_position_reads_encoder_output_at_same_position():
    model = with_large_parameters(
        EncoderDecoderModel(system().encoder, decoder(kernel_size=1, dilations=(1,)))
    )
    examples = batch(store(), [6])
    encoded = model.encoder(*examples.sources)
    unfolded = encoded.unfolded
    tokens = torch.full((1, unfolded.size(1) + 3), 5)
    log_probs = model.decoder(tokens, encoded).log_probs[0]
    for position in range(unfolded.size(1)):
        changed = unfolded.clone()
        changed[:, position] += 1
        other = model.decoder(tokens, encoded._replace(unfolded=changed)).log_probs[0]
        assert (log_probs != other).any(dim=-1).nonzero().flatten().tolist() == [position]
    torch.testing.assert_close(log_probs[-1], log_probs[-3])


def test_encoder_without_unfolding_loads_to_its_end():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    model = with_large_parameters(
        EncoderDecoderModel(encoder.build(vocab_size=VOCABULARY), decoder())
    )
    examples = batch(store(), [2, 5])
    encoded = model.encoder(*examples.sources)
    whole = model(examples).log_probs
    unfolded = encoded._replace(unfolded=encoded.states)
    torch.testing.assert_close(model.decoder(examples.decoder_inputs, unfolded).log_probs, whole)


def test_dropout_is_before_output_head():
    module = decoder(dropout=0.4)
    assert isinstance(module.output_layers[-1], nn.Dropout)
    assert module.output_layers[-1].p == 0.4
    assert module.embedding.dropout.p == 0


def test_encoder_of_another_size_raises():
    with pytest.raises(ConfigError) as caught:
        decoder(memory_size=8)
    assert str(caught.value) == (
        "decoder.hidden_size: needs encoder states of size 6, but they have 8\n"
        "  set encoder.type to 'dilated' and give both the same hidden_size"
    )
