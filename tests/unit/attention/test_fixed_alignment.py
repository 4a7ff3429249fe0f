"""Fixed alignments by hand, and in a decoder."""

import pytest
import torch

from heedful.attention.alignments import FixedAlignment, FixedAlignmentConfig
from heedful.attention.config import AttentionConfig
from heedful.attention.memory import AttentionState
from heedful.config import validate_settings
from heedful.errors import ConfigError

# Two sources of three and two positions, one padded on the right and one on the left.
MASK = torch.tensor([[True, True, True, False], [False, False, True, True]])


def weights(pattern, num_queries, mask=MASK, state=None):
    scores = torch.randn(len(mask), num_queries, mask.size(-1))
    return FixedAlignment(pattern)(scores, mask, state=state).weights.tolist()


def test_uniform_weights_are_one_over_the_number_of_positions():
    third = pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert weights("uniform", 2) == [[third, third], [[0, 0, 0.5, 0.5]] * 2]


def test_last_weight_is_at_the_last_position():
    assert weights("last", 2) == [[[0, 0, 1, 0]] * 2, [[0, 0, 0, 1]] * 2]


def test_diagonal_stays_at_the_last_position_when_the_source_has_ended():
    first = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    second = [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert weights("diagonal", 4) == [first, second]


def test_diagonal_continues_after_earlier_queries():
    zeros = torch.zeros(2, 4)
    state = AttentionState(torch.tensor([2, 0]), zeros, zeros, zeros, torch.ones(2))
    assert weights("diagonal", 1, state=state) == [[[0, 0, 1, 0]], [[0, 0, 1, 0]]]


@pytest.mark.parametrize("pattern", ["uniform", "last", "diagonal"])
def test_scores_get_zero_gradient_and_values_get_gradients(pattern):
    config = AttentionConfig(alignment=FixedAlignmentConfig(pattern=pattern))
    attention = config.build(query_size=3, memory_size=2)
    values = torch.randn(2, 4, 2, requires_grad=True)
    output = attention(torch.randn(2, 4, 3), attention.build_memory(values, MASK))
    output.context.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in attention.parameters())
    columns = output.weights.sum(dim=1)  # the derivative of the sum of all contexts
    torch.testing.assert_close(values.grad, columns.unsqueeze(-1).expand_as(values))


def test_unknown_pattern_raises():
    with pytest.raises(ConfigError) as error:
        validate_settings(FixedAlignmentConfig, {"pattern": "diagnal"}, location="recipe.yaml")
    message = "recipe.yaml: pattern: 'diagnal' is not allowed; did you mean 'diagonal'?"
    assert str(error.value) == f"{message}\n  choose from: diagonal, last, uniform"
