import pytest
import torch
from torch import nn

from heedful.attention import SoftmaxAlignment
from heedful.attention.dot_product_scores import DotScore
from heedful.errors import ConfigError
from heedful.inspection.attention_trace import trace_attention
from heedful.models.convolutional import ConvolutionalDecoderConfig, ConvolutionalEncoderConfig
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.pytree import select_rows
from tests.catalogue import VOCABULARY, batch, select_source, store

LAYERS = [
    {"num_layers": 2, "hidden_size": 6, "kernel_size": 3},
    {"hidden_size": 4, "kernel_size": 2},
    {"hidden_size": 7, "kernel_size": 1},
]
COVERING = {"type": "additive", "features": [{"type": "coverage"}]}
SETTINGS = {
    "as in the paper": {},
    "heads": {"attention": {"multi_head": {"num_heads": 2, "head_dim": 3}}},
    "bilinear, sparsemax": {
        "attention": {"score": {"type": "bilinear"}, "alignment": {"type": "sparsemax"}}
    },
    "coverage": {"attention": {"score": COVERING}},
    "monotonic": {"attention": {"alignment": {"type": "monotonic"}}},
    "one layer": {"layers": [{"hidden_size": 5}]},
    "no positions": {"positional_encoding": None},
    "narrow output": {"output_size": 3},
}
each_setting = pytest.mark.parametrize("name", SETTINGS)


def decoder(memory_size=5, **settings):
    given = {"embedding_size": 5, "layers": LAYERS} | settings
    config = ConvolutionalDecoderConfig.model_validate(given)
    return config.build(vocab_size=VOCABULARY, memory_size=memory_size)


def system(name="as in the paper"):
    """An untrained system with weights large enough to make its outputs differ."""
    layers = [{"num_layers": 2, "hidden_size": 6}, {"size": 3}]
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=layers)
    built = encoder.build(vocab_size=VOCABULARY)
    model = EncoderDecoderModel(built, decoder(**SETTINGS[name])).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


@each_setting
def test_step_by_step_is_the_whole_sequence(name):
    model, examples = system(name), batch(store(), [0, 3, 5, 6])
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
    state = model.step(first, model.initial_state(examples.sources)).state
    tokens = torch.tensor([4, 7, 9])
    together = model.step(tokens, select_rows(state, rows)).log_probs
    for place, row in enumerate(rows.tolist()):
        own = model.step(
            first[row : row + 1], model.initial_state(select_source(examples.sources, row))
        ).state
        alone = model.step(tokens[place : place + 1], own)
        torch.testing.assert_close(together[place : place + 1], alone.log_probs)


def test_weights_are_the_mean_of_the_layers():
    model, examples = system(), batch(store(), [2, 5])
    with trace_attention(model) as records:
        whole = model(examples, need_weights=True)
    assert len(records) == 4
    mean = torch.stack([record.weights.squeeze(1) for record in records]).mean(dim=0)
    torch.testing.assert_close(whole.weights, mean)
    assert {record.role for record in records} == {"cross"}


def test_without_weights_the_same_is_said():
    model, examples = system(), batch(store(), [2, 5])
    told, untold = model(examples, need_weights=True), model(examples)
    assert untold.weights is None
    torch.testing.assert_close(untold.log_probs, told.log_probs)


def test_attention_that_is_penalised_is_looked_at_even_where_no_weights_are_needed():
    attention = {"auxiliary_losses": [{"type": "entropy", "weight": 0.5}]}
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=LAYERS[:1])
    built = encoder.build(vocab_size=VOCABULARY)
    model, examples = (
        EncoderDecoderModel(built, decoder(attention=attention)),
        batch(store(), [2, 5]),
    )
    found, wanted = (
        model(examples).auxiliary_losses,
        model(examples).auxiliary_losses,
    )
    assert len(found) == 1
    torch.testing.assert_close(found, wanted)


def test_an_encoder_of_another_kind_can_be_written_about():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    built = encoder.build(vocab_size=VOCABULARY)
    attention = {"score": {"type": "bilinear"}}
    model = EncoderDecoderModel(built, decoder(memory_size=6, attention=attention)).double()
    examples = batch(store(), [2, 5])
    model(examples).log_probs.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_a_context_keeps_the_variance_of_what_it_is_the_mean_of():
    built = decoder(embedding_size=256, memory_size=256, layers=[{"hidden_size": 256}]).layers[0]
    states, length = torch.randn(1, 49, 256), torch.tensor([49.0])
    memory = built.attention.build_memory(states, torch.ones(1, 1, 49, dtype=torch.bool))
    evenly = torch.zeros(1, 1, 256)  # a query that calls for every place alike
    context = built.attention(evenly, memory).context * length.sqrt()
    assert context.var().item() == pytest.approx(1, rel=0.3)


def test_dots_are_compared_unless_another_score_is_said():
    for settings in ({}, {"attention": {}}, {"attention": {"dropout": 0.1}}):
        attention = decoder(**settings).layers[0].attention
        assert type(attention.score) is DotScore
        assert type(attention.alignment_function) is SoftmaxAlignment


def test_a_token_is_told_from_a_matrix_as_all_others_begin():
    built = decoder(embedding_size=400, memory_size=400, dropout=0.36)
    weight = built.output_head.projection.weight
    assert weight.std().item() == pytest.approx((0.64 / 400) ** 0.5, rel=0.05)
    assert (built.output_head.projection.bias == 0).all()
    assert isinstance(built.dropout, nn.Dropout)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"embedding_size": 4},
            "score.type: 'dot' needs equal sizes, but queries have 4 and keys 5\n"
            "  make the sizes equal, or choose 'bilinear' or 'additive'",
        ),
        (
            {"attention": {"readout": {"type": "per-position"}}},
            "decoder.attention.readout.type: 'per-position' keeps every place apart, but here one "
            "context is wanted\n  choose the readout 'expectation'",
        ),
        (
            {"output_head": {"type": "marginal"}},
            "decoder.output_head.type: 'marginal' wants to know every place of the source apart, but "
            "the layers have mixed them\n"
            "  choose the emission 'vocabulary', or a recurrent decoder",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError) as caught:
        decoder(**settings)
    assert str(caught.value) == message
