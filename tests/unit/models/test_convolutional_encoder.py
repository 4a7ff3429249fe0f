import pytest
import torch
from pydantic import ValidationError

from heedful.models.base import EncoderStateSizes
from heedful.models.convolutional import ConvolutionalEncoderConfig

LAYERS = [
    {"num_layers": 2, "hidden_size": 6, "kernel_size": 3},
    {"hidden_size": 4, "kernel_size": 5},
    {"hidden_size": 7, "kernel_size": 1},
]
LENGTHS = torch.tensor([5, 1, 3])
IS_REAL = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, 11, (3, 5), generator=torch.Generator().manual_seed(1)) * IS_REAL
SETTINGS = {
    "learned positions": {},
    "no positions": {"positional_encoding": None},
    "waves": {"positional_encoding": {"type": "sinusoidal"}},
    "positions beside words": {
        "positional_encoding": {"type": "learned", "combine": "concat", "size": 3}
    },
    "one layer": {"layers": [{"hidden_size": 3}]},
}
each_setting = pytest.mark.parametrize("name", SETTINGS)


def encoder(name="learned positions", **settings):
    options = {"embedding_size": 5, "layers": LAYERS} | SETTINGS[name] | settings
    module = ConvolutionalEncoderConfig.model_validate(options).build(vocab_size=11).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return module.eval()


def states_and_keys(encoded):
    return encoded.states, encoded.keys


@each_setting
def test_states_and_keys_have_embedding_size_and_zero_padding(name):
    module = encoder(name)
    encoded = module(TOKENS, LENGTHS)
    for each in states_and_keys(encoded):
        assert each.shape == (3, 5, module.output_size)
        assert (each[~IS_REAL] == 0).all()
        assert each[IS_REAL].abs().sum(dim=-1).all()
    assert module.output_size == module.embedding.embedding_size
    assert module.state_sizes == EncoderStateSizes()


def test_states_scaled_sum_of_keys_and_embeddings():
    module = encoder()
    encoded = module(TOKENS, LENGTHS)
    words = module.embedding(TOKENS)
    torch.testing.assert_close(
        encoded.states[IS_REAL], ((encoded.keys + words) * 0.5**0.5)[IS_REAL]
    )


def test_summary_is_mean_of_states():
    encoded = encoder()(TOKENS, LENGTHS)
    torch.testing.assert_close(encoded.summary[2], encoded.states[2, :3].mean(dim=0))


def test_receptive_field_is_sum_of_kernels():
    # Kernels of 3, 3, 5 and 1 reach 1 + 1 + 2 + 0 positions to either side.
    module = encoder(positional_encoding=None)
    tokens, lengths = torch.full((1, 13), 5), torch.tensor([13])
    plain = module(tokens, lengths).keys[0, 6]
    for position in range(13):
        changed = tokens.clone()
        changed[0, position] = 8
        is_influential = not torch.equal(module(changed, lengths).keys[0, 6], plain)
        assert is_influential == (abs(position - 6) <= 4)


def test_embeddings_start_with_std_of_paper():
    config = ConvolutionalEncoderConfig(embedding_size=64, layers=LAYERS)
    embedding = config.build(vocab_size=500).embedding
    assert embedding.embedding.weight[1:].std().item() == pytest.approx(0.1, rel=0.02)
    assert embedding.position_combiner.encoding.embedding.weight.std().item() == pytest.approx(
        0.1, rel=0.02
    )
    assert (embedding.embedding.weight[0] == 0).all()


def test_dropout_is_off_in_eval_mode():
    module = encoder(dropout=0.3)
    in_eval = [module(TOKENS, LENGTHS).states for _ in range(2)]
    assert torch.equal(*in_eval)
    module.train()
    in_training = [module(TOKENS, LENGTHS).states for _ in range(2)]
    assert not torch.equal(*in_training)


@pytest.mark.parametrize(
    ("layers", "problem"),
    [
        (
            [{"kernel_size": 4}],
            "kernel_size of an encoder must be odd, but is 4",
        ),
        ([], "at least 1 item"),
        ([{"num_layers": 0}], "greater than 0"),
    ],
)
def test_invalid_layers_raise(layers, problem):
    with pytest.raises(ValidationError) as caught:
        ConvolutionalEncoderConfig(layers=layers)
    assert problem in str(caught.value)
