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
    """An untrained system with weights large enough to make its outputs differ."""
    encoder = DilatedEncoderConfig(hidden_size=3, dilations=(1, 2), length_factor=factor)
    built = encoder.build(vocab_size=VOCABULARY)
    return strengthened(EncoderDecoderModel(built, decoder(**SETTINGS[name])))


def strengthened(model):
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.7)
    return model.double().eval()


@each_setting
@pytest.mark.parametrize("factor", [1.0, 1.2, 2.0])
def test_step_by_step_is_the_whole_sequence(name, factor):
    model, examples = system(name, factor), batch(store(), [0, 3, 5, 6])
    whole, state = model(examples, need_weights=True), model.initial_state(examples.sources)
    for time, tokens in enumerate(examples.decoder_inputs.unbind(dim=1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.log_probs, whole.log_probs[:, time])
        torch.testing.assert_close(step.weights, whole.weights[:, time])


@each_setting
def test_padding_and_neighbours_have_no_influence_in_value_and_gradient(name):
    model, corpus = system(name), store()
    weights = list(model.parameters())

    def read(examples):
        said = model(examples).log_probs
        told = said.gather(-1, examples.targets.unsqueeze(-1)).squeeze(-1)
        loss = told.masked_fill(examples.targets == 0, 0).sum()
        return said, torch.autograd.grad(loss, weights)

    rows = [1, 4, 6]
    (tight, tight_gradients), (loose, loose_gradients) = (
        read(batch(corpus, rows, extra=extra)) for extra in (0, 5)
    )
    torch.testing.assert_close(loose[:, : tight.size(1)], tight)
    torch.testing.assert_close(loose_gradients, tight_gradients)
    alone = [read(batch(corpus, [row])) for row in rows]
    for row, (said, _) in enumerate(alone):
        torch.testing.assert_close(tight[row, : said.size(1)], said[0])
    for whole, *parts in zip(tight_gradients, *(found for _, found in alone), strict=True):
        torch.testing.assert_close(whole, sum(parts))


@each_setting
def test_the_gradient_of_a_place_reaches_its_receptive_field_and_never_forward(name):
    model, examples = system(name), batch(store(), [6])
    vectors = []
    hook = model.decoder.embedding.register_forward_hook(
        lambda part, given, made: vectors.append(made) or made
    )
    said = model(examples).log_probs
    hook.remove()
    field = model.decoder.stack.receptive_field
    for time in range(said.size(1)):
        (gradient,) = torch.autograd.grad(said[0, time].sin().sum(), vectors, retain_graph=True)
        seen = (gradient[0].abs().sum(dim=-1) > 0).nonzero().flatten().tolist()
        assert max(seen) == time
        assert min(seen) >= time - field + 1
        assert field == 1 or time == 0 or min(seen) < time


@each_setting
def test_rows_of_a_state_go_their_own_way(name):
    model, examples = system(name), batch(store(), [2, 5])
    rows, first = torch.tensor([1, 1, 0]), torch.tensor([4, 5])
    state = model.step(first, model.initial_state(examples.sources)).state
    tokens = torch.tensor([4, 7, 9])
    together = model.step(tokens, select_rows(state, rows)).log_probs
    for place, row in enumerate(rows.tolist()):
        own = model.step(
            first[row : row + 1], model.initial_state(select_source(examples.sources, row))
        ).state
        alone = model.step(tokens[place : place + 1], own)
        torch.testing.assert_close(together[place : place + 1], alone.log_probs)


def test_nothing_is_looked_at():
    model, examples = system(), batch(store(), [2, 5])
    whole = model(examples, need_weights=True)
    assert whole.weights.shape == (*examples.decoder_inputs.shape, examples.sources.tokens.size(1))
    assert (whole.weights == 0).all()
    assert model(examples).weights is None


def test_a_place_reads_what_the_encoder_made_of_it_and_beyond_the_end_nothing():
    model = strengthened(
        EncoderDecoderModel(system().encoder, decoder(kernel_size=1, dilations=(1,)))
    )
    examples = batch(store(), [6])
    encoded = model.encoder(*examples.sources)
    unfolded = encoded.unfolded
    tokens = torch.full((1, unfolded.size(1) + 3), 5)
    said = model.decoder(tokens, encoded).log_probs[0]
    for place in range(unfolded.size(1)):
        changed = unfolded.clone()
        changed[:, place] += 1
        other = model.decoder(tokens, encoded._replace(unfolded=changed)).log_probs[0]
        assert (said != other).any(dim=-1).nonzero().flatten().tolist() == [place]
    torch.testing.assert_close(said[-1], said[-3])


def test_an_encoder_that_does_not_unfold_is_read_as_far_as_it_goes():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    model = strengthened(EncoderDecoderModel(encoder.build(vocab_size=VOCABULARY), decoder()))
    examples = batch(store(), [2, 5])
    encoded = model.encoder(*examples.sources)
    whole = model(examples).log_probs
    unfolded = encoded._replace(unfolded=encoded.states)
    torch.testing.assert_close(model.decoder(examples.decoder_inputs, unfolded).log_probs, whole)


def test_dropout_is_where_a_token_is_told_from():
    built = decoder(dropout=0.4)
    assert isinstance(built.output_layers[-1], nn.Dropout)
    assert built.output_layers[-1].p == 0.4
    assert built.embedding.dropout.p == 0


def test_an_encoder_of_another_width_is_refused():
    with pytest.raises(ConfigError) as caught:
        decoder(memory_size=8)
    assert str(caught.value) == (
        "decoder.hidden_size: a dilated decoder of hidden_size 3 stands on states of width 6, but "
        "those of the encoder have 8\n"
        "  give both sides kind 'dilated' and the same hidden_size"
    )
