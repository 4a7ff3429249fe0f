import pytest
import torch
from pydantic import ValidationError
from torch import nn

from heedful.models.bytenet import DilatedEncoderConfig

LENGTHS = torch.tensor([5, 1, 3])
IS_REAL = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, 11, (3, 5), generator=torch.Generator().manual_seed(1)) * IS_REAL


def encoder(**settings):
    defaults = {"hidden_size": 3, "dilations": (1, 2), "length_factor": 1.5, "length_offset": 1}
    module = DilatedEncoderConfig(**defaults | settings).build(vocab_size=11).double()
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.7)
    with torch.no_grad():
        module.embedding.embedding.weight[0] = 0
    return module.eval()


@pytest.mark.parametrize(
    ("factor", "offset", "length", "expected"),
    [(1.2, 0, 5, 6), (1.2, 0, 10, 12), (1.2, 0, 7, 8), (1.0, 3, 4, 7), (1.1, 0, 10, 11)],
)
def test_unfolded_length_is_rounded_a_times_length_plus_b(factor, offset, length, expected):
    module = encoder(length_factor=factor, length_offset=offset)
    unfolded_lengths = module.unfolded_lengths(torch.arange(13)).tolist()
    assert unfolded_lengths[length] == expected
    assert unfolded_lengths[0] == offset
    assert len(unfolded_lengths) == 13


def test_states_unfolded_outputs_at_source_tokens():
    module = encoder()
    encoded = module(TOKENS, LENGTHS)
    assert module.output_size == 6
    assert encoded.states.shape == (3, 5, 6)
    assert encoded.unfolded.shape == (3, 8, 6)  # 1.5 * 5 + 1 = 8.5, the nearest even number
    assert (encoded.states[~IS_REAL] == 0).all()
    torch.testing.assert_close(encoded.states[IS_REAL], encoded.unfolded[:, :5][IS_REAL])
    is_nonzero = encoded.unfolded.abs().sum(dim=-1) > 0
    assert is_nonzero.sum(dim=1).tolist() == [8, 2, 6]  # of 8.5, 2.5 and 5.5


def test_tokens_influence_positions_behind_them():
    module = encoder()
    changed = TOKENS.clone()
    changed[0, 4] = 4 if TOKENS[0, 4] != 4 else 5
    one, other = module(TOKENS, LENGTHS).unfolded, module(changed, LENGTHS).unfolded
    assert (one[0, 5:] != other[0, 5:]).any(dim=-1).all()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kernel_size": 2}, "kernel_size of an encoder must be odd, but is 2"),
        ({"length_factor": 0.9}, "greater than or equal to 1"),
        ({"dilations": ()}, "at least 1 item"),
    ],
)
def test_invalid_settings_raise(settings, problem):
    with pytest.raises(ValidationError) as caught:
        DilatedEncoderConfig(**settings)
    assert problem in str(caught.value)
