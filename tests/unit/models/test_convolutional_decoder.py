import pytest
import torch
from torch import nn

from heedful.attention.alignments import SoftmaxAlignment
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
COVERAGE_SCORE = {"type": "additive", "features": [{"type": "coverage"}]}
SETTINGS = {
    "as in the paper": {},
    "heads": {"attention": {"multi_head": {"num_heads": 2, "head_dim": 3}}},
    "bilinear, sparsemax": {
        "attention": {"score": {"type": "bilinear"}, "alignment": {"type": "sparsemax"}}
    },
    "coverage": {"attention": {"score": COVERAGE_SCORE}},
    "monotonic": {"attention": {"alignment": {"type": "monotonic"}}},
    "one layer": {"layers": [{"hidden_size": 5}]},
    "no positions": {"positional_encoding": None},
    "narrow output": {"output_size": 3},
}
each_setting = pytest.mark.parametrize("name", SETTINGS)


def decoder(memory_size=5, **settings):
    options = {"embedding_size": 5, "layers": LAYERS} | settings
    config = ConvolutionalDecoderConfig.model_validate(options)
    return config.build(vocab_size=VOCABULARY, memory_size=memory_size)


def system(name="as in the paper"):
    """An untrained model with parameters large enough to make its outputs differ."""
    layers = [{"num_layers": 2, "hidden_size": 6}, {"hidden_size": 3}]
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=layers)
    module = encoder.build(vocab_size=VOCABULARY)
    model = EncoderDecoderModel(module, decoder(**SETTINGS[name])).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


@each_setting
def test_steps_match_whole_sequence(name):
    model, examples = system(name), batch(store(), [0, 3, 5, 6])
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
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        return log_probs, gradients

    rows = [1, 4, 6]
    (tight, tight_gradients), (loose, loose_gradients) = (
        read(batch(corpus, rows, extra=extra)) for extra in (0, 5)
    )
    torch.testing.assert_close(loose[:, : tight.size(1)], tight)
    torch.testing.assert_close(loose_gradients, tight_gradients)
    alone = [read(batch(corpus, [row])) for row in rows]
    for row, (log_probs, _) in enumerate(alone):
        torch.testing.assert_close(tight[row, : log_probs.size(1)], log_probs[0])
    for whole, *parts in zip(
        tight_gradients, *(gradients_of_row for _, gradients_of_row in alone), strict=True
    ):
        torch.testing.assert_close(whole, sum(parts))


@each_setting
def test_output_depends_on_earlier_positions_only(name):
    model, examples = system(name), batch(store(), [6])
    vectors = []
    hook = model.decoder.embedding.register_forward_hook(
        lambda part, options, outputs: vectors.append(outputs) or outputs
    )
    log_probs = model(examples).log_probs
    hook.remove()
    for time in range(log_probs.size(1)):
        (gradient,) = torch.autograd.grad(
            log_probs[0, time].sin().sum(), vectors, retain_graph=True
        )
        influential = gradient[0].abs().sum(dim=-1) > 0
        assert not influential[time + 1 :].any()
        assert influential[max(0, time - 1) : time + 1].all()


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


def test_weights_are_mean_over_layers():
    model, examples = system(), batch(store(), [2, 5])
    with trace_attention(model) as records:
        whole = model(examples, need_weights=True)
    assert len(records) == 4
    mean = torch.stack([record.weights.squeeze(1) for record in records]).mean(dim=0)
    torch.testing.assert_close(whole.weights, mean)
    assert {record.role for record in records} == {"cross"}


def test_log_probs_are_the_same_without_weights():
    model, examples = system(), batch(store(), [2, 5])
    with_weights, without = model(examples, need_weights=True), model(examples)
    assert without.weights is None
    torch.testing.assert_close(without.log_probs, with_weights.log_probs)


def test_auxiliary_losses_computed_without_need_weights():
    attention = {"auxiliary_losses": [{"type": "entropy", "weight": 0.5}]}
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=LAYERS[:1])
    module = encoder.build(vocab_size=VOCABULARY)
    model, examples = (
        EncoderDecoderModel(module, decoder(attention=attention)),
        batch(store(), [2, 5]),
    )
    actual, expected = (
        model(examples, need_weights=need).auxiliary_losses for need in (False, True)
    )
    assert len(actual) == 1
    torch.testing.assert_close(actual, expected)


def test_decoder_works_with_recurrent_encoder():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    module = encoder.build(vocab_size=VOCABULARY)
    attention = {"score": {"type": "bilinear"}}
    model = EncoderDecoderModel(module, decoder(memory_size=6, attention=attention)).double()
    examples = batch(store(), [2, 5])
    model(examples).log_probs.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_context_scale_keeps_variance():
    module = decoder(embedding_size=256, memory_size=256, layers=[{"hidden_size": 256}]).layers[0]
    states, length = torch.randn(1, 49, 256), torch.tensor([49.0])
    memory = module.attention.build_memory(states, torch.ones(1, 1, 49, dtype=torch.bool))
    zero_query = torch.zeros(1, 1, 256)  # uniform weights
    context = module.attention(zero_query, memory).context * length.sqrt()
    assert context.var().item() == pytest.approx(1, rel=0.3)


def test_default_score_is_dot_product():
    for settings in ({}, {"attention": {}}, {"attention": {"dropout": 0.1}}):
        attention = decoder(**settings).layers[0].attention
        assert type(attention.score) is DotScore
        assert type(attention.alignment_function) is SoftmaxAlignment


def test_output_head_has_std_of_other_layers():
    module = decoder(embedding_size=400, memory_size=400, dropout=0.36)
    weight = module.output_head.projection.weight
    assert weight.std().item() == pytest.approx((0.64 / 400) ** 0.5, rel=0.05)
    assert (module.output_head.projection.bias == 0).all()
    assert isinstance(module.dropout, nn.Dropout)


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
            "decoder.attention.readout.type: 'per-position' needs a context per source position, "
            "but this decoder has one\n"
            "  choose 'weighted-sum', or a recurrent decoder",
        ),
        (
            {"output_head": {"type": "marginal"}},
            "decoder.output_head.type: 'marginal' needs a context per source position, but this "
            "decoder has one\n"
            "  choose 'softmax', or a recurrent decoder",
        ),
    ],
)
def test_incompatible_settings_raise(settings, message):
    with pytest.raises(ConfigError) as caught:
        decoder(**settings)
    assert str(caught.value) == message
