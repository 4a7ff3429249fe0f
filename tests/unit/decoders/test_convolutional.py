import pytest
import torch
from torch import nn

from heedful.attention import Softmax
from heedful.attention.products import DotScore
from heedful.decoders.convolutional import ConvolutionalDecoderConfig
from heedful.encoders.convolutional import ConvolutionalEncoderConfig
from heedful.encoders.recurrent import RecurrentEncoderConfig
from heedful.errors import ConfigError
from heedful.inspection.trace import trace
from heedful.nested import select
from heedful.tasks.transduction import Transducer
from tests.catalogue import VOCABULARY, batch, only, store

LAYERS = [{"count": 2, "size": 6, "kernel": 3}, {"size": 4, "kernel": 2}, {"size": 7, "kernel": 1}]
COVERING = {"kind": "additive", "features": [{"kind": "coverage"}]}
SETTINGS = {
    "as in the paper": {},
    "heads": {"attention": {"heads": {"num_heads": 2, "head_size": 3}}},
    "bilinear, sparsemax": {
        "attention": {"score": {"kind": "bilinear"}, "align": {"kind": "sparsemax"}}
    },
    "coverage": {"attention": {"score": COVERING}},
    "monotonic": {"attention": {"align": {"kind": "monotonic"}}},
    "one layer": {"layers": [{"size": 5}]},
    "no positions": {"positions": None},
    "narrow output": {"output_size": 3},
}
each_setting = pytest.mark.parametrize("name", SETTINGS)


def decoder(memory_size=5, **settings):
    given = {"embedding_size": 5, "layers": LAYERS} | settings
    config = ConvolutionalDecoderConfig.model_validate(given)
    return config.build(vocabulary_size=VOCABULARY, memory_size=memory_size)


def system(name="as in the paper"):
    """An untrained system with weights large enough to make its outputs differ."""
    layers = [{"count": 2, "size": 6}, {"size": 3}]
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=layers)
    built = encoder.build(vocabulary_size=VOCABULARY)
    model = Transducer(built, decoder(**SETTINGS[name])).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


@each_setting
def test_step_by_step_is_the_whole_sequence(name):
    model, examples = system(name), batch(store(), [0, 3, 5, 6])
    whole, state = model(examples), model.start(examples.sources)
    for time, tokens in enumerate(examples.inputs.unbind(dim=1)):
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
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        return said, gradients

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
def test_the_gradient_of_a_place_reaches_back_and_never_forward(name):
    model, examples = system(name), batch(store(), [6])
    vectors = []
    hook = model.decoder.embedding.register_forward_hook(
        lambda part, given, made: vectors.append(made) or made
    )
    said = model(examples).log_probs
    hook.remove()
    for time in range(said.size(1)):
        (gradient,) = torch.autograd.grad(said[0, time].sin().sum(), vectors, retain_graph=True)
        seen = gradient[0].abs().sum(dim=-1) > 0
        assert not seen[time + 1 :].any()
        assert seen[max(0, time - 1) : time + 1].all()


@each_setting
def test_rows_of_a_state_go_their_own_way(name):
    model, examples = system(name), batch(store(), [2, 5])
    rows, first = torch.tensor([1, 1, 0]), torch.tensor([4, 5])
    state = model.step(first, model.start(examples.sources)).state
    tokens = torch.tensor([4, 7, 9])
    together = model.step(tokens, select(state, rows)).log_probs
    for place, row in enumerate(rows.tolist()):
        own = model.step(first[row : row + 1], model.start(only(examples.sources, row))).state
        alone = model.step(tokens[place : place + 1], own)
        torch.testing.assert_close(together[place : place + 1], alone.log_probs)


def test_weights_are_the_mean_of_the_layers():
    model, examples = system(), batch(store(), [2, 5])
    with trace(model) as records:
        whole = model(examples)
    assert len(records) == 4
    mean = torch.stack([record.weights.squeeze(1) for record in records]).mean(dim=0)
    torch.testing.assert_close(whole.weights, mean)
    assert {record.kind for record in records} == {"cross"}


def test_without_weights_the_same_is_said():
    model, examples = system(), batch(store(), [2, 5])
    told, untold = model(examples), model(examples, need_weights=False)
    assert untold.weights is None
    torch.testing.assert_close(untold.log_probs, told.log_probs)


def test_attention_that_is_penalised_is_looked_at_even_where_no_weights_are_needed():
    attention = {"penalties": [{"kind": "entropy", "weight": 0.5}]}
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=LAYERS[:1])
    built = encoder.build(vocabulary_size=VOCABULARY)
    model, examples = Transducer(built, decoder(attention=attention)), batch(store(), [2, 5])
    found, wanted = model(examples, need_weights=False).penalties, model(examples).penalties
    assert len(found) == 1
    torch.testing.assert_close(found, wanted)


def test_an_encoder_of_another_kind_can_be_written_about():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    built = encoder.build(vocabulary_size=VOCABULARY)
    attention = {"score": {"kind": "bilinear"}}
    model = Transducer(built, decoder(memory_size=6, attention=attention)).double()
    examples = batch(store(), [2, 5])
    model(examples).log_probs.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_a_context_keeps_the_variance_of_what_it_is_the_mean_of():
    built = decoder(embedding_size=256, memory_size=256, layers=[{"size": 256}]).layers[0]
    states, length = torch.randn(1, 49, 256), torch.tensor([49.0])
    memory = built.attention.remember(states, torch.ones(1, 1, 49, dtype=torch.bool))
    evenly = torch.zeros(1, 1, 256)  # a query that calls for every place alike
    context = built.attention(evenly, memory).context * length.sqrt()
    assert context.var().item() == pytest.approx(1, rel=0.3)


def test_dots_are_compared_unless_another_score_is_said():
    for settings in ({}, {"attention": {}}, {"attention": {"dropout": 0.1}}):
        attention = decoder(**settings).layers[0].attention
        assert type(attention.score) is DotScore
        assert type(attention.align) is Softmax


def test_a_token_is_told_from_a_matrix_as_all_others_begin():
    built = decoder(embedding_size=400, memory_size=400, dropout=0.36)
    weight = built.emission.projection.weight
    assert weight.std().item() == pytest.approx((0.64 / 400) ** 0.5, rel=0.05)
    assert (built.emission.projection.bias == 0).all()
    assert isinstance(built.dropout, nn.Dropout)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"embedding_size": 4},
            "score.kind: a dot product needs equal sizes, but queries have 4 and keys 5\n"
            "  make the sizes equal, or choose 'bilinear' or 'additive'",
        ),
        (
            {"attention": {"read": {"kind": "per-position"}}},
            "decoder.attention.read.kind: 'per-position' keeps every place apart, but here one "
            "context is wanted\n  choose the readout 'expectation'",
        ),
        (
            {"emission": {"kind": "marginal"}},
            "decoder.emission.kind: 'marginal' wants to know every place of the source apart, but "
            "the layers have mixed them\n"
            "  choose the emission 'vocabulary', or a recurrent decoder",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError) as caught:
        decoder(**settings)
    assert str(caught.value) == message
