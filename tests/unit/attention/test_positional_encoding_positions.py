"""Vectors of places against their papers' formulas, and how they join what stands there."""

import math

import pytest
import torch

from heedful.attention.positional_encoding import (
    AddPositionalEncoding,
    ConcatPositionalEncoding,
    LearnedEncoding,
    LearnedEncodingConfig,
    PositionalEncodingConfig,
    SinusoidalEncoding,
    SinusoidalEncodingConfig,
)
from heedful.config import BaseConfig, validate_settings
from heedful.errors import ConfigError

PLACES = [0, 1, 2, 31, 5000, 100_000]


def sinusoids(places, size):
    return SinusoidalEncoding(size)(torch.tensor(places), torch.double)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_sinusoids_follow_the_formula_for_even_and_odd_sizes(size):
    def entry(place, column):
        angle = place / 10000 ** (2 * (column // 2) / size)
        return math.cos(angle) if column % 2 else math.sin(angle)

    wanted = [[entry(place, column) for column in range(size)] for place in PLACES]
    assert sinusoids(PLACES, size).tolist() == [pytest.approx(row, abs=1e-9) for row in wanted]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_step_turns_every_sinusoid_alike_wherever_it_begins(step):
    frequencies = [10000 ** (-2 * i / 6) for i in range(3)]
    turns = torch.block_diag(
        *(
            torch.tensor([[math.cos(w), math.sin(w)], [-math.sin(w), math.cos(w)]])
            for w in (step * frequency for frequency in frequencies)
        )
    ).double()
    later = sinusoids([place + step for place in PLACES], 6)
    torch.testing.assert_close(later, sinusoids(PLACES, 6) @ turns.T, atol=1e-6, rtol=0)


def test_sinusoids_have_nothing_to_learn_or_to_save():
    assert dict(SinusoidalEncoding(6).state_dict()) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sinusoids_in_half_precision_are_rounded_once_at_the_end(dtype):
    found = SinusoidalEncoding(8)(torch.tensor(PLACES), dtype)
    assert torch.equal(found, sinusoids(PLACES, 8).to(dtype))


@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16])
def test_a_place_has_the_same_vector_beside_near_and_far_ones(precision):
    positions, near = SinusoidalEncoding(6), torch.tensor([[0, 7], [511, 3]])
    beside_far = positions(torch.cat([near, torch.tensor([[512, 10**6]])]), precision)
    assert torch.equal(positions(near, precision), beside_far[:2])
    assert beside_far.dtype == precision


def test_learned_positions_have_a_vector_for_each_place_and_the_last_for_all_beyond():
    positions = LearnedEncoding(3, max_positions=4)
    table = positions.embedding.weight.detach()
    wanted = torch.stack([table[0], table[3], table[3], table[3]])
    assert torch.equal(positions(torch.tensor([0, 3, 4, 10**9])), wanted)


def test_learned_positions_are_trained_through_the_places_asked_for():
    positions = LearnedEncoding(2, max_positions=4)
    positions(torch.tensor([1, 5, 6])).sum().backward()
    assert positions.embedding.weight.grad.tolist() == [[0, 0], [1, 1], [0, 0], [2, 2]]


def test_added_positions_keep_the_width():
    placing, vectors = AddPositionalEncoding(SinusoidalEncoding(4)), torch.randn(2, 3, 4)
    told = placing(vectors)
    assert placing.output_size == told.size(-1) == 4
    torch.testing.assert_close(told - vectors, sinusoids([0, 1, 2], 4).float().expand(2, 3, 4))


def test_concatenated_positions_stand_beside_untouched_vectors():
    placing = ConcatPositionalEncoding(SinusoidalEncoding(2), input_size=4)
    vectors = torch.randn(2, 3, 4)
    told = placing(vectors)
    assert placing.output_size == told.size(-1) == 6
    assert torch.equal(told[..., :4], vectors)
    assert torch.equal(told[..., 4:], sinusoids([0, 1, 2], 2).float().expand(2, 3, 2))


@pytest.mark.parametrize(
    ("settings", "size", "output_size"),
    [
        (SinusoidalEncodingConfig(), 5, 5),
        (SinusoidalEncodingConfig(combine="concat"), 5, 10),
        (LearnedEncodingConfig(combine="concat", size=3), 3, 8),
        (LearnedEncodingConfig(max_positions=7), 5, 5),
    ],
)
def test_the_settings_reach_what_is_built(settings, size, output_size):
    placing = settings.build(embedding_size=5)
    assert placing.encoding.size == size
    assert placing.output_size == output_size
    if settings.type == "learned":
        assert placing.encoding.embedding.weight.shape == (settings.max_positions, size)


def test_a_width_of_its_own_is_refused_for_what_is_added():
    class PackedLayer(BaseConfig):
        positional_encoding: PositionalEncodingConfig = SinusoidalEncodingConfig()

    with pytest.raises(ConfigError) as refused:
        validate_settings(
            PackedLayer,
            {"positional_encoding": {"type": "learned", "size": 3}},
            location="recipe.yaml",
        )
    assert refused.value.message == "size can be chosen with join: concatenate only"
