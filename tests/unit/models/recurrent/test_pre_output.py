"""Each output by hand."""

import pytest
import torch

from heedful.models.recurrent.pre_output import (
    ConcatPreOutput,
    ConcatPreOutputConfig,
    MaxoutPreOutput,
    MaxoutPreOutputConfig,
    PreOutputParts,
    StateOnlyPreOutputConfig,
    StepVectors,
    TanhPreOutput,
    TanhPreOutputConfig,
)

WIDTHS = {"before": 2, "state": 2, "context": 3, "token": 4}
TELLING = PreOutputParts(("context", "state"), deep=("before", "token", "context"))


def left(places=None):
    context = torch.randn(5, 3) if places is None else torch.randn(5, places, 3)
    return StepVectors(torch.randn(5, 2), torch.randn(5, 2), torch.randn(5, 4), context)


def test_maxout_keeps_the_larger_of_each_pair():
    output = MaxoutPreOutput(["state"], 2, 2, dropout=0.0)
    with torch.no_grad():
        output.projection.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1]]))
        output.projection.bias.zero_()
    said = torch.tensor([[3.0, 5.0], [-2.0, 1.0]])  # t~ = 3 5 8 -2, and -2 1 -1 -3
    torch.testing.assert_close(output(said), torch.tensor([[5.0, 8.0], [1.0, -1.0]]))


def test_maxout_adds_up_state_token_and_context():
    """t~ = U_o s + V_o y + C_o c, each with its own part of one matrix."""
    output = MaxoutPreOutputConfig(size=3).build(TELLING, WIDTHS, dropout=0.0)
    step = left()
    U_o, V_o, C_o = output.projection.weight.split([2, 4, 3], dim=1)
    sums = (
        step.previous_state @ U_o.T
        + step.token_embedding @ V_o.T
        + step.context @ C_o.T
        + output.projection.bias
    )
    wanted = torch.stack([sums[:, 2 * j : 2 * j + 2].max(-1).values for j in range(3)], -1)
    torch.testing.assert_close(output(output.concat_parts(step)), wanted)


def test_tanh_squashes_a_sum_over_the_parts():
    output, step = TanhPreOutputConfig().build(TELLING, WIDTHS, dropout=0.0), left()
    C, S = output.projection.weight.split([3, 2], dim=1)
    wanted = (step.context @ C.T + step.state @ S.T + output.projection.bias).tanh()
    torch.testing.assert_close(output(output.concat_parts(step)), wanted)


def test_plain_is_context_and_state_side_by_side():
    output, step = ConcatPreOutputConfig().build(TELLING, WIDTHS, dropout=0.0), left()
    assert output.size == 5
    wanted = torch.cat([step.context, step.state], -1)
    torch.testing.assert_close(output(output.concat_parts(step)), wanted)


def test_none_is_the_state_itself():
    output, step = StateOnlyPreOutputConfig().build(TELLING, WIDTHS, dropout=0.0), left()
    assert output.size == 2
    torch.testing.assert_close(output(output.concat_parts(step)), step.state)


def test_maxout_has_as_many_pairs_as_a_state_has_values_unless_told():
    assert MaxoutPreOutputConfig().build(TELLING, WIDTHS, dropout=0.0).size == 2
    assert MaxoutPreOutputConfig(size=7).build(TELLING, WIDTHS, dropout=0.0).size == 7


@pytest.mark.parametrize(
    "config", [TanhPreOutputConfig(), MaxoutPreOutputConfig(), ConcatPreOutputConfig()], ids=str
)
def test_where_every_place_has_a_context_each_place_is_told_from_as_if_alone(config):
    output, step = config.build(TELLING, WIDTHS, dropout=0.0), left(places=6)
    together = output(output.concat_parts(step))
    for place in range(6):
        alone = step._replace(context=step.context[:, place])
        torch.testing.assert_close(together[:, place], output(output.concat_parts(alone)))


@pytest.mark.parametrize("make", [TanhPreOutput, MaxoutPreOutput])
def test_dropout_is_on_what_goes_in(make):
    output = make(["state"], 1000, 1, dropout=0.5)
    seen = []
    output.projection.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    output(torch.ones(1, 1000))
    assert set(seen[0].flatten().tolist()) == {0.0, 2.0}
    output.eval()(torch.ones(1, 1000))
    assert (seen[1] == 1).all()


def test_dropout_is_on_what_is_given_on():
    given = ConcatPreOutput(["state"], 1000, dropout=0.5)(torch.ones(1, 1000))
    assert set(given.flatten().tolist()) == {0.0, 2.0}
