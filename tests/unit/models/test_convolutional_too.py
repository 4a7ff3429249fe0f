import pytest
import torch
from pydantic import ValidationError

from heedful.models.convolutional import ConvolutionalEncoderConfig

LAYERS = [
    {"num_layers": 2, "hidden_size": 6, "kernel_size": 3},
    {"hidden_size": 4, "kernel_size": 5},
    {"hidden_size": 7, "kernel_size": 1},
]
LENGTHS = torch.tensor([5, 1, 3])
SEEN = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, 11, (3, 5), generator=torch.Generator().manual_seed(1)) * SEEN
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
    given = {"embedding_size": 5, "layers": LAYERS} | SETTINGS[name] | settings
    built = ConvolutionalEncoderConfig.model_validate(given).build(vocab_size=11).double()
    with torch.no_grad():
        for weight in built.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return built.eval()


def told(encoded):
    return encoded.states, encoded.keys


@each_setting
def test_states_and_keys_are_as_wide_as_embeddings_and_zero_past_the_end(name):
    built = encoder(name)
    encoded = built(TOKENS, LENGTHS)
    for each in told(encoded):
        assert each.shape == (3, 5, built.size)
        assert (each[~SEEN] == 0).all()
        assert each[SEEN].abs().sum(dim=-1).all()
    assert built.size == built.embedding.size
    assert built.final_state_sizes == ()


@each_setting
def test_padding_and_what_stands_in_it_have_no_influence(name):
    built = encoder(name)
    spoiled = torch.cat([torch.where(SEEN, TOKENS, 7), torch.full((3, 4), 9)], dim=1)
    narrow, wide = built(TOKENS, LENGTHS), built(spoiled, LENGTHS)
    for one, other in zip(told(narrow), told(wide), strict=True):
        torch.testing.assert_close(other[:, :5], one)
    torch.testing.assert_close(wide.summary, narrow.summary)


@each_setting
def test_a_row_is_read_in_a_batch_as_it_is_read_alone_in_value_and_gradient(name):
    built = encoder(name)
    weights = list(built.parameters())

    def gradients(encoded):
        loss = sum(part.sin().sum() for part in (*told(encoded), encoded.summary))
        return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)

    together = gradients(built(TOKENS, LENGTHS))
    alone = [
        gradients(built(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1]))
        for row, length in enumerate(LENGTHS.tolist())
    ]
    for whole, *parts in zip(together, *alone, strict=True):
        torch.testing.assert_close(whole, sum(parts))


def test_what_is_taken_is_the_sum_of_keys_and_words_times_the_root_of_a_half():
    built = encoder()
    encoded = built(TOKENS, LENGTHS)
    words = built.embedding(TOKENS)
    torch.testing.assert_close(encoded.states[SEEN], ((encoded.keys + words) * 0.5**0.5)[SEEN])


def test_the_summary_is_the_mean_of_the_states():
    encoded = encoder()(TOKENS, LENGTHS)
    torch.testing.assert_close(encoded.summary[2], encoded.states[2, :3].mean(dim=0))


def test_a_state_sees_as_far_as_its_layers_and_no_farther():
    # Kernels of 3, 3, 5 and 1 reach 1 + 1 + 2 + 0 places to either side.
    built = encoder(positional_encoding=None)
    tokens, lengths = torch.full((1, 13), 5), torch.tensor([13])
    plain = built(tokens, lengths).keys[0, 6]
    for place in range(13):
        changed = tokens.clone()
        changed[0, place] = 8
        is_seen = not torch.equal(built(changed, lengths).keys[0, 6], plain)
        assert is_seen == (abs(place - 6) <= 4)


def test_words_and_places_begin_with_the_spread_of_the_paper():
    config = ConvolutionalEncoderConfig(embedding_size=64, layers=LAYERS)
    embedding = config.build(vocab_size=500).embedding
    assert embedding.embedding.weight[1:].std().item() == pytest.approx(0.1, rel=0.02)
    assert embedding.position_combiner.encoding.embedding.weight.std().item() == pytest.approx(
        0.1, rel=0.02
    )
    assert (embedding.embedding.weight[0] == 0).all()


def test_dropout_is_drawn_in_training_and_not_when_asked():
    built = encoder(dropout=0.3)
    asked = [built(TOKENS, LENGTHS).states for _ in range(2)]
    assert torch.equal(*asked)
    built.train()
    drawn = [built(TOKENS, LENGTHS).states for _ in range(2)]
    assert not torch.equal(*drawn)


@pytest.mark.parametrize(
    ("layers", "problem"),
    [
        (
            [{"kernel_size": 4}],
            "an encoder sees as many places before as after: kernel must be odd",
        ),
        ([], "at least 1 item"),
        ([{"count": 0}], "greater than 0"),
    ],
)
def test_layers_that_cannot_be_built_are_refused(layers, problem):
    with pytest.raises(ValidationError) as caught:
        ConvolutionalEncoderConfig(layers=layers)
    assert problem in str(caught.value)
