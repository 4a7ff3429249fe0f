"""Invariants of every image encoder."""

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.data.text.batching import SourceBatch
from heedful.models.captioning import CaptioningConfig, ImageEncoderConfig
from heedful.models.image_encoders import unpack_codes
from tests.captioning import ENCODERS, FEATURES, LAYERS, images

each_encoder = pytest.mark.parametrize("name", ENCODERS)
OVER_FEATURES = [name for name in ENCODERS if "features" in name]


def build_encoder(settings):
    torch.manual_seed(0)
    config = CaptioningConfig.model_validate({"encoder": settings}).encoder
    return config, config.build().double().eval()


def test_every_type_of_image_encoder_is_tested():
    expected = {type_of(config) for config in types_in(ImageEncoderConfig)}
    assert {encoder["type"] for encoder in ENCODERS.values()} == expected


@each_encoder
def test_states_are_the_cells_of_the_grid(name):
    config, encoder = build_encoder(ENCODERS[name])
    sources = images(ENCODERS[name])
    output = encoder(*sources)
    assert encoder.grid == config.grid
    assert encoder.image_shape == config.image_shape
    num_cells = config.grid[0] * config.grid[1]
    assert output.states.shape == (len(sources.lengths), num_cells, encoder.output_size)
    assert (output.lengths == sources.lengths).all()


@each_encoder
def test_image_encoding_is_independent_of_the_batch(name):
    _, encoder = build_encoder(ENCODERS[name])
    tokens, lengths = images(ENCODERS[name])
    together = encoder(tokens, lengths).states
    for row in range(len(lengths)):
        alone = encoder(tokens[row : row + 1], lengths[row : row + 1]).states
        torch.testing.assert_close(alone[0], together[row])


@each_encoder
def test_cells_beyond_the_length_are_zero(name):
    _, encoder = build_encoder(ENCODERS[name])
    tokens, lengths = images(ENCODERS[name])
    states = encoder(tokens, lengths - 1).states
    is_padding = torch.arange(states.size(1)) >= (lengths - 1)[:, None]
    assert (states[is_padding] == 0).all()
    assert (states[~is_padding] != 0).any()


@pytest.mark.parametrize("name", OVER_FEATURES)
def test_padded_cells_have_no_influence(name):
    _, encoder = build_encoder(ENCODERS[name])
    tokens, lengths = images(ENCODERS[name])
    is_padding = torch.arange(tokens.size(1)) >= lengths[:, None]
    changed = torch.where(is_padding[..., None], 7.0, tokens)
    assert is_padding.any()
    torch.testing.assert_close(encoder(changed, lengths).states, encoder(tokens, lengths).states)


@pytest.mark.parametrize("cells", [{}, {"hidden_size": 8, "activation": "relu"}])
@pytest.mark.parametrize("has_layers", [False, True])
def test_permuted_cells_return_permuted_states(cells, has_layers):
    settings = {**FEATURES, **cells}
    if has_layers:
        over_cells = {"type": "transformer", "cells": settings, "positional_encoding": None}
        settings = {**over_cells, **LAYERS}
    _, encoder = build_encoder(settings)
    tokens, _ = images(FEATURES)
    lengths = torch.full((len(tokens),), tokens.size(1))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    expected = encoder(tokens, lengths).states[:, order]
    torch.testing.assert_close(encoder(tokens[:, order], lengths).states, expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_are_the_same_within_a_row_and_within_a_column(positions):
    _, encoder = build_encoder({**FEATURES, "positional_encoding": {"type": positions}})
    cells = encoder(torch.zeros(1, 6, 6).double(), torch.tensor([6])).states.unflatten(1, (2, 3))[0]
    of_rows, of_columns = cells[..., :3], cells[..., 3:]
    torch.testing.assert_close(of_rows, of_rows[:, :1].expand_as(of_rows))
    torch.testing.assert_close(of_columns, of_columns[:1].expand_as(of_columns))
    assert not torch.allclose(of_rows[0], of_rows[1])
    assert not torch.allclose(of_columns[:, 0], of_columns[:, 1])


def test_codes_of_four_bits_unpacked_low_half_first():
    codes = torch.tensor([[[0x21, 0x43]]], dtype=torch.uint8)
    assert unpack_codes(codes, 4).tolist() == [[[1, 2, 3, 4]]]
    assert unpack_codes(codes, 3).tolist() == [[[1, 2, 3]]]
    assert unpack_codes(codes, 2).tolist() == [[[0x21, 0x43]]]


@pytest.mark.parametrize("bits", [4, 8])
def test_feature_codes_dequantized(bits):
    _, encoder = build_encoder(FEATURES)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(2**bits, (3, 6, 6), generator=generator)
    for buffer, values in zip(encoder.buffers(), torch.rand(4, 6).double() + 0.5, strict=True):
        buffer.copy_(values)
    step, offset = encoder.step, encoder.offset
    stored = codes.byte()
    if bits == 4:
        stored = stored[..., ::2] | (stored[..., 1::2] << 4)
    lengths = torch.full((3,), 6)
    expected = encoder(codes * step + offset, lengths).states
    torch.testing.assert_close(encoder(stored, lengths).states, expected)
    by_hand = (codes[1, 2, 5] * step[5] + offset[5] - encoder.mean[5]) / encoder.deviation[5]
    torch.testing.assert_close(expected[1, 2, 5], by_hand)


@pytest.mark.parametrize("name", ["cnn", "patches"])
def test_bytes_mapped_to_the_range_from_minus_one_to_one(name):
    _, encoder = build_encoder(ENCODERS[name])
    tokens, lengths = images(ENCODERS[name])
    scaled = tokens.double() / 127.5 - 1
    expected = encoder(*SourceBatch(scaled, lengths)).states
    torch.testing.assert_close(encoder(tokens, lengths).states, expected)


def test_stride_is_every_nth_output_of_the_convolution():
    settings = {**ENCODERS["cnn, stride"], "channels": [4], "pooling": [[2, 1]], "norm": "none"}
    settings["layers_per_stage"] = 1
    _, strided = build_encoder(settings)
    _, whole = build_encoder({**settings, "pooling": [[1, 1]]})
    whole.load_state_dict(strided.state_dict())
    tokens, _ = images(settings)
    lengths = torch.full((len(tokens),), strided.grid[0] * strided.grid[1])
    every = torch.full((len(tokens),), whole.grid[0] * whole.grid[1])
    expected = whole(tokens, every).states.unflatten(1, whole.grid)[:, ::2]
    torch.testing.assert_close(strided(tokens, lengths).states, expected.flatten(1, 2))


def test_stride_with_an_even_kernel_raises():
    settings = {**ENCODERS["cnn, stride"], "kernel_size": 4}
    message = "a stride needs an odd kernel_size, but it is 4"
    with pytest.raises(ValueError, match=message):
        CaptioningConfig.model_validate({"encoder": settings})
