"""Each pre-output layer by hand."""

import pytest
import torch

from heedful.models.recurrent.pre_output import (
    ConcatPreOutputConfig,
    DeepOutputConfig,
    LinearPreOutputConfig,
    MaxoutPreOutputConfig,
    PreOutput,
    PreOutputParts,
    StateOnlyPreOutputConfig,
    StepVectors,
    SumPreOutputConfig,
    TanhPreOutputConfig,
)

PART_SIZES = {"previous_state": 2, "state": 2, "context": 3, "token_embedding": 4}
PARTS = PreOutputParts(("context", "state"), deep=("previous_state", "token_embedding", "context"))


def step_vectors(num_positions=None):
    context = torch.randn(5, 3) if num_positions is None else torch.randn(5, num_positions, 3)
    return StepVectors(torch.randn(5, 2), torch.randn(5, 2), torch.randn(5, 4), context)


def test_maxout_keeps_larger_of_each_pair():
    output = PreOutput(["state"], {"state": 2}, activation="maxout", dropout=0.0)
    with torch.no_grad():
        output.projection.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1]]))
        output.projection.bias.zero_()
    inputs = torch.tensor([[3.0, 5.0], [-2.0, 1.0]])  # t~ = 3 5 8 -2, and -2 1 -1 -3
    torch.testing.assert_close(output(inputs), torch.tensor([[5.0, 8.0], [1.0, -1.0]]))


def test_maxout_sums_state_token_and_context():
    """t~ = U_o s + V_o y + C_o c, each with its own part of one matrix."""
    output = MaxoutPreOutputConfig(size=3).build(PARTS, PART_SIZES, 0.0)
    step = step_vectors()
    U_o, V_o, C_o = output.projection.weight.split([2, 4, 3], dim=1)
    sums = (
        step.previous_state @ U_o.T
        + step.token_embedding @ V_o.T
        + step.context @ C_o.T
        + output.projection.bias
    )
    expected = torch.stack([sums[:, 2 * j : 2 * j + 2].max(-1).values for j in range(3)], -1)
    torch.testing.assert_close(output(output.concat_parts(step)), expected)


def test_tanh_layer_same_as_formula():
    output, step = TanhPreOutputConfig().build(PARTS, PART_SIZES, 0.0), step_vectors()
    C, S = output.projection.weight.split([3, 2], dim=1)
    expected = (step.context @ C.T + step.state @ S.T + output.projection.bias).tanh()
    torch.testing.assert_close(output(output.concat_parts(step)), expected)


def test_linear_layer_is_tanh_layer_without_tanh():
    output, step = LinearPreOutputConfig().build(PARTS, PART_SIZES, 0.0), step_vectors()
    C, S = output.projection.weight.split([3, 2], dim=1)
    expected = step.context @ C.T + step.state @ S.T + output.projection.bias
    torch.testing.assert_close(output(output.concat_parts(step)), expected)


def test_concat_is_context_and_state():
    output, step = ConcatPreOutputConfig().build(PARTS, PART_SIZES, 0.0), step_vectors()
    assert output.size == 5
    expected = torch.cat([step.context, step.state], -1)
    torch.testing.assert_close(output(output.concat_parts(step)), expected)


def test_state_only_is_the_state():
    output, step = StateOnlyPreOutputConfig().build(PARTS, PART_SIZES, 0.0), step_vectors()
    assert output.size == 2
    torch.testing.assert_close(output(output.concat_parts(step)), step.state)


@pytest.mark.parametrize("tanh", [False, True])
def test_deep_output_adds_embedding_to_projections_of_state_and_context(tanh):
    output, step = DeepOutputConfig(tanh=tanh).build(PARTS, PART_SIZES, 0.0), step_vectors()
    L_z, L_h = output.projection.weight.split([3, 2], dim=1)
    sums = step.token_embedding + step.context @ L_z.T + step.state @ L_h.T
    sums = sums + output.projection.bias
    assert output.size == 4
    actual = output(output.concat_parts(step))
    torch.testing.assert_close(actual, sums.tanh() if tanh else sums)


def test_deep_output_drops_out_input_of_projection_and_features():
    output = DeepOutputConfig().build(PARTS, {**PART_SIZES, "token_embedding": 1000}, 0.5)
    with torch.no_grad():
        output.projection.weight.zero_()
        output.projection.bias.zero_()
    features = output(torch.ones(1, 1005))
    assert set(features.flatten().tolist()) == {0.0, 2.0}


def test_sum_adds_state_and_context():
    sizes = {**PART_SIZES, "state": 3}
    output = SumPreOutputConfig().build(PARTS, sizes, 0.0)
    step = step_vectors()._replace(state=torch.randn(5, 3))
    assert output.size == 3
    actual = output(output.concat_parts(step))
    torch.testing.assert_close(actual, step.state + step.context)


def test_maxout_size_defaults_to_hidden_size():
    assert MaxoutPreOutputConfig().build(PARTS, PART_SIZES, 0.0).size == 2
    assert MaxoutPreOutputConfig(size=7).build(PARTS, PART_SIZES, 0.0).size == 7


@pytest.mark.parametrize(
    "config",
    [TanhPreOutputConfig(), MaxoutPreOutputConfig(), ConcatPreOutputConfig(), DeepOutputConfig()],
    ids=str,
)
def test_contexts_per_position_return_features_per_position(config):
    output, step = config.build(PARTS, PART_SIZES, 0.0), step_vectors(num_positions=6)
    together = output(output.concat_parts(step))
    for position in range(6):
        alone = step._replace(context=step.context[:, position])
        torch.testing.assert_close(together[:, position], output(output.concat_parts(alone)))


@pytest.mark.parametrize("activation", ["tanh", "maxout"])
def test_dropout_is_on_input_of_projection(activation):
    sizes = {"state": 1000}
    output = PreOutput(["state"], sizes, activation=activation, size=1, dropout=0.5)
    projected = []
    output.projection.register_forward_pre_hook(lambda _, inputs: projected.append(inputs[0]))
    output(torch.ones(1, 1000))
    assert set(projected[0].flatten().tolist()) == {0.0, 2.0}
    output.eval()(torch.ones(1, 1000))
    assert (projected[1] == 1).all()


def test_concat_applies_dropout():
    features = PreOutput(["state"], {"state": 1000}, dropout=0.5)(torch.ones(1, 1000))
    assert set(features.flatten().tolist()) == {0.0, 2.0}
