"""An encoder of two columns with opposite directions (Zhou et al. 2016)."""

import pytest
import torch
from pydantic import ValidationError

from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
DEEP_ATT = {
    "cell": "lstm",
    "direction": "alternating",
    "connection": {"type": "fast-forward", "shortcut_size": 8},
}


def encoder(**settings):
    config = {"embedding_size": 3, "hidden_size": 4, "num_layers": 3} | DEEP_ATT | settings
    return RecurrentEncoderConfig.model_validate(config).build(vocab_size=9).double().eval()


def test_columns_are_the_encoders_of_both_directions_side_by_side():
    """Single encoders with the parameters of a column, one of them with reversed directions."""
    both = encoder(num_columns=2, hidden_size=8)
    directions = ["alternating", {"type": "alternating", "reverse_source": True}]
    singles = [encoder(direction=direction) for direction in directions]
    for single, column in zip(singles, both.columns, strict=True):
        single.load_state_dict(column.state_dict())
    for module in (both, *singles):
        module.returns_cell_states = True
    joined, *parts = (module(TOKENS, LENGTHS) for module in (both, *singles))
    for name in ("states", "summary"):
        expected = torch.cat([getattr(part, name) for part in parts], dim=-1)
        torch.testing.assert_close(getattr(joined, name), expected)
    for name in ("final_states", "final_cell_states"):
        layers = zip(*(getattr(part, name) for part in parts), strict=True)
        expected = tuple(torch.cat(layer, dim=-1) for layer in layers)
        torch.testing.assert_close(getattr(joined, name), expected)
    assert both.output_size == joined.states.size(-1) == 8
    assert both.state_sizes.final_state_sizes == (8, 8, 8)


def test_columns_share_one_embedding():
    both = encoder(num_columns=2, hidden_size=8)
    assert both.embedding is both.columns[0].embedding is both.columns[1].embedding
    names = [name for name, _ in both.named_parameters() if "embedding.weight" in name]
    assert len(names) == 1


def test_top_layers_of_alternating_columns_have_opposite_directions():
    """Three layers: the second column reads backward last, as the bridge `backward` needs."""
    both = encoder(num_columns=2, hidden_size=8)
    first, second = (column.layers[-1] for column in both.columns)
    assert first.backward_cell is None
    assert second.forward_cell is None
    assert both.state_sizes.backward_size == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 5}, "of a layer, must be divisible by 2: 5"),
        (
            {"hidden_size": 6, "direction": "bidirectional-then-forward"},
            "of a layer, must be divisible by 4: 6",
        ),
        ({"direction": "bidirectional"}, "num_columns 2 needs directions to reverse, such as 'alt"),
    ],
)
def test_impossible_columns_reported(settings, message):
    with pytest.raises(ValidationError, match=message):
        encoder(num_columns=2, **settings)
