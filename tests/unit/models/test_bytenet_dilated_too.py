import pytest
import torch
from pydantic import ValidationError
from torch import nn

from heedful.models.bytenet import DilatedEncoderConfig, DynamicUnfolding

LENGTHS = torch.tensor([5, 1, 3])
SEEN = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, 11, (3, 5), generator=torch.Generator().manual_seed(1)) * SEEN


def encoder(**settings):
    given = {"hidden_size": 3, "dilations": (1, 2), "length_factor": 1.5, "length_offset": 1}
    built = DilatedEncoderConfig(**given | settings).build(vocab_size=11).double()
    for weight in built.parameters():
        nn.init.normal_(weight, std=0.7)
    with torch.no_grad():
        built.embedding.embedding.weight[0] = 0
    return built.eval()


@pytest.mark.parametrize(
    ("factor", "offset", "length", "wanted"),
    [(1.2, 0, 5, 6), (1.2, 0, 10, 12), (1.2, 0, 7, 8), (1.0, 3, 4, 7), (1.1, 0, 10, 11)],
)
def test_a_source_is_unfolded_to_a_times_its_length_plus_b(factor, offset, length, wanted):
    unfolding = DynamicUnfolding(factor, offset)
    assert unfolding.unfolded_length(length) == wanted
    assert unfolding(torch.tensor([length, 0]), 12).tolist() == [wanted, offset]


def test_states_are_those_of_words_and_what_lies_behind_is_kept_beside_them():
    built = encoder()
    encoded = built(TOKENS, LENGTHS)
    assert built.size == 6
    assert encoded.states.shape == (3, 5, 6)
    assert encoded.unfolded.shape == (3, 8, 6)  # 1.5 * 5 + 1 = 8.5, the nearest even number
    assert (encoded.states[~SEEN] == 0).all()
    torch.testing.assert_close(encoded.states[SEEN], encoded.unfolded[:, :5][SEEN])
    there = encoded.unfolded.abs().sum(dim=-1) > 0
    assert there.sum(dim=1).tolist() == [8, 2, 6]  # of 8.5, 2.5 and 5.5


def test_words_have_a_say_in_the_places_behind_them():
    built = encoder()
    changed = TOKENS.clone()
    changed[0, 4] = 4 if TOKENS[0, 4] != 4 else 5
    one, other = built(TOKENS, LENGTHS).unfolded, built(changed, LENGTHS).unfolded
    assert (one[0, 5:] != other[0, 5:]).any(dim=-1).all()


def test_padding_and_what_stands_in_it_have_no_influence():
    built = encoder()
    spoiled = torch.cat([torch.where(SEEN, TOKENS, 7), torch.full((3, 4), 9)], dim=1)
    narrow, wide = built(TOKENS, LENGTHS), built(spoiled, LENGTHS)
    torch.testing.assert_close(wide.states[:, :5], narrow.states)
    torch.testing.assert_close(wide.unfolded[:, :8], narrow.unfolded)
    torch.testing.assert_close(wide.summary, narrow.summary)
    assert (wide.unfolded[:, 8:] == 0).all()


def test_a_row_is_read_in_a_batch_as_it_is_read_alone_in_value_and_gradient():
    built = encoder()
    weights = list(built.parameters())

    def gradients(encoded):
        loss = encoded.unfolded.sin().sum() + encoded.summary.sin().sum()
        return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)

    whole = built(TOKENS, LENGTHS)
    alone = []
    for row, length in enumerate(LENGTHS.tolist()):
        own = built(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(whole.states[row, :length], own.states[0])
        torch.testing.assert_close(whole.unfolded[row, : own.unfolded.size(1)], own.unfolded[0])
        alone.append(gradients(own))
    for together, *parts in zip(gradients(whole), *alone, strict=True):
        torch.testing.assert_close(together, sum(parts))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kernel_size": 2}, "an encoder sees as far before as after: kernel must be odd, not 2"),
        ({"length_factor": 0.9}, "greater than or equal to 1"),
        ({"dilations": ()}, "at least 1 item"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, problem):
    with pytest.raises(ValidationError) as caught:
        DilatedEncoderConfig(**settings)
    assert problem in str(caught.value)
