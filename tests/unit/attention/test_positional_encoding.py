"""Positional encodings against their formulas, added and concatenated."""

import math

import pytest
import torch

from heedful.attention.positional_encoding import (
    IndexEncoding,
    IndexEncodingConfig,
    LearnedEncoding,
    LearnedEncodingConfig,
    PositionalEncodingConfig,
    PositionCombiner,
    SinusoidalEncoding,
    SinusoidalEncodingConfig,
)
from heedful.config import BaseConfig, validate_settings
from heedful.errors import ConfigError
from heedful.models.transformer import TransformerEncoderConfig

POSITIONS = [0, 1, 2, 31, 5000, 100_000]


def sinusoids(positions, size):
    return SinusoidalEncoding(size)(torch.tensor(positions), torch.double)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_sinusoidal_encoding_same_as_formula(size):
    def entry(position, column):
        angle = position / 10000 ** (2 * (column // 2) / size)
        return math.cos(angle) if column % 2 else math.sin(angle)

    expected = [[entry(position, column) for column in range(size)] for position in POSITIONS]
    assert sinusoids(POSITIONS, size).tolist() == [pytest.approx(row, abs=1e-9) for row in expected]


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_split_layout_has_all_sines_before_all_cosines(size):
    angles = [10000 ** (-2 * pair / size) for pair in range((size + 1) // 2)]
    expected = [
        [math.sin(position * angle) for angle in angles]
        + [math.cos(position * angle) for angle in angles[: size // 2]]
        for position in POSITIONS
    ]
    encoding = SinusoidalEncoding(size, layout="split")
    actual = encoding(torch.tensor(POSITIONS), torch.double).tolist()
    assert actual == [pytest.approx(row, abs=1e-9) for row in expected]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sinusoids_in_half_precision_rounded_once(dtype):
    actual = SinusoidalEncoding(8)(torch.tensor(POSITIONS), dtype)
    assert torch.equal(actual, sinusoids(POSITIONS, 8).to(dtype))


@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16])
def test_sinusoid_is_independent_of_other_positions(precision):
    encoding, near = SinusoidalEncoding(6), torch.tensor([[0, 7], [511, 3]])
    beside_far = encoding(torch.cat([near, torch.tensor([[512, 10**6]])]), precision)
    assert torch.equal(encoding(near, precision), beside_far[:2])
    assert beside_far.dtype == precision


def test_learned_encoding_clamps_positions_to_last_row():
    encoding = LearnedEncoding(3, max_positions=4)
    table = encoding.embedding.weight.detach()
    expected = torch.stack([table[0], table[3], table[3], table[3]])
    assert torch.equal(encoding(torch.tensor([0, 3, 4, 10**9])), expected)


def test_index_encoding_appends_the_position_without_a_limit():
    combiner = IndexEncodingConfig().build(embedding_size=2)
    vectors = torch.tensor([[0.5, -1.0], [2.0, 3.0]])
    assert combiner(vectors, 7).tolist() == [[0.5, -1, 7], [2, 3, 8]]
    assert combiner(vectors, 10**6)[:, 2].tolist() == [1_000_000, 1_000_001]
    assert combiner.output_size == 3
    assert dict(combiner.state_dict()) == {}


def test_index_encoding_is_scaled():
    encoding = IndexEncodingConfig(scale=0.01).build(embedding_size=2).encoding
    assert encoding(torch.tensor([0, 1, 250]), torch.double).flatten().tolist() == [0, 0.01, 2.5]


def test_bfloat16_rounds_the_index_from_256_on():
    positions = torch.tensor([255, 256, 257, 258])
    assert IndexEncoding()(positions, torch.bfloat16).flatten().tolist() == [255, 256, 256, 258]


def test_added_encoding_keeps_size():
    combiner, vectors = PositionCombiner(SinusoidalEncoding(4), input_size=4), torch.randn(2, 3, 4)
    encoded = combiner(vectors)
    assert combiner.output_size == encoded.size(-1) == 4
    torch.testing.assert_close(encoded - vectors, sinusoids([0, 1, 2], 4).float().expand(2, 3, 4))


def test_concatenated_encoding_leaves_vectors_unchanged():
    combiner = PositionCombiner(SinusoidalEncoding(2), input_size=4, combine="concat")
    vectors = torch.randn(2, 3, 4)
    encoded = combiner(vectors)
    assert combiner.output_size == encoded.size(-1) == 6
    assert torch.equal(encoded[..., :4], vectors)
    assert torch.equal(encoded[..., 4:], sinusoids([0, 1, 2], 2).float().expand(2, 3, 2))


@pytest.mark.parametrize(
    ("settings", "size", "output_size"),
    [
        (SinusoidalEncodingConfig(), 5, 5),
        (SinusoidalEncodingConfig(combine="concat"), 5, 10),
        (LearnedEncodingConfig(combine="concat", size=3), 3, 8),
        (LearnedEncodingConfig(max_positions=7), 5, 5),
        (IndexEncodingConfig(), 1, 6),
    ],
)
def test_config_passes_settings_to_encoding(settings, size, output_size):
    combiner = settings.build(embedding_size=5)
    assert combiner.encoding.size == size
    assert combiner.output_size == output_size
    if settings.type == "learned":
        assert combiner.encoding.embedding.weight.shape == (settings.max_positions, size)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "learned", "size": 3}, "size needs combine: concat"),
        ({"type": "index", "combine": "add"}, "'add' is not allowed"),
        ({"type": "index", "size": 2}, "should be less than or equal to 1, got 2"),
    ],
)
def test_impossible_combination_raises(settings, message):
    class ExampleConfig(BaseConfig):
        positional_encoding: PositionalEncodingConfig = SinusoidalEncodingConfig()

    with pytest.raises(ConfigError) as error:
        validate_settings(ExampleConfig, {"positional_encoding": settings}, location="recipe.yaml")
    assert error.value.message == message


def test_transformer_splits_size_between_token_and_concatenated_position():
    sinusoids = {"type": "sinusoidal", "combine": "concat"}
    for settings, token_size in (
        ({**sinusoids, "size": 2}, 6),
        (sinusoids, 4),
        ({"type": "index"}, 7),
    ):
        config = TransformerEncoderConfig.model_validate(
            {
                "hidden_size": 8,
                "num_layers": 1,
                "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
                "positional_encoding": settings,
            }
        )
        embedding = config.build_embedding(5)
        assert embedding.embedding.weight.shape == (5, token_size)
        assert embedding(torch.tensor([[1, 2, 3]])).shape == (1, 3, 8)
