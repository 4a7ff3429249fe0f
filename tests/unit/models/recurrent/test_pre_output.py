"""Each pre-output layer by hand."""

import pytest
import torch

from heedful.models.recurrent.decoder_parts import (
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


def step_vectors(num_positions=None, state_size=2):
    context = torch.randn(5, 3) if num_positions is None else torch.randn(5, num_positions, 3)
    return StepVectors(torch.randn(5, 2), torch.randn(5, state_size), torch.randn(5, 4), context)


def affine(output, *parts):
    return torch.cat(parts, -1) @ output.projection.weight.T + output.projection.bias


def maxout(output, step):
    """The larger of each pair of t~ = U_o s + V_o y + C_o c."""
    sums = affine(output, step.previous_state, step.token_embedding, step.context)
    return sums.unflatten(-1, (-1, 2)).amax(-1)


FORMULAS = {
    MaxoutPreOutputConfig(): maxout,
    MaxoutPreOutputConfig(size=7): maxout,
    TanhPreOutputConfig(): lambda output, step: affine(output, step.context, step.state).tanh(),
    LinearPreOutputConfig(): lambda output, step: affine(output, step.context, step.state),
    ConcatPreOutputConfig(): lambda _, step: torch.cat([step.context, step.state], -1),
    StateOnlyPreOutputConfig(): lambda _, step: step.state,
    SumPreOutputConfig(): lambda _, step: step.context + step.state,
    DeepOutputConfig(tanh=False): lambda output, step: (
        step.token_embedding + affine(output, step.context, step.state)
    ),
    DeepOutputConfig(tanh=True): lambda output, step: (
        step.token_embedding + affine(output, step.context, step.state)
    ).tanh(),
}


@pytest.mark.parametrize(("config", "formula"), FORMULAS.items(), ids=map(str, FORMULAS))
def test_pre_output_same_as_formula(config, formula):
    state_size = 3 if isinstance(config, SumPreOutputConfig) else 2
    output = config.build(PARTS, {**PART_SIZES, "state": state_size}, 0.0)
    step = step_vectors(state_size=state_size)
    expected = formula(output, step)
    torch.testing.assert_close(output(output.concat_parts(step)), expected)
    assert output.size == expected.size(-1)
    assert not isinstance(config, MaxoutPreOutputConfig) or output.size == (config.size or 2)


def test_maxout_keeps_larger_of_each_pair():
    output = PreOutput(["state"], {"state": 2}, activation="maxout", dropout=0.0)
    with torch.no_grad():
        output.projection.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1]]))
        output.projection.bias.zero_()
    inputs = torch.tensor([[3.0, 5.0], [-2.0, 1.0]])  # t~ = 3 5 8 -2, and -2 1 -1 -3
    torch.testing.assert_close(output(inputs), torch.tensor([[5.0, 8.0], [1.0, -1.0]]))


def test_deep_output_drops_out_input_of_projection_and_features():
    output = DeepOutputConfig().build(PARTS, {**PART_SIZES, "token_embedding": 1000}, 0.5)
    with torch.no_grad():
        output.projection.weight.zero_()
        output.projection.bias.zero_()
    features = output(torch.ones(1, 1005))
    assert set(features.flatten().tolist()) == {0.0, 2.0}


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
    output = PreOutput(["state"], {"state": 1000}, activation=activation, size=1, dropout=0.5)
    projected = []
    output.projection.register_forward_pre_hook(lambda _, inputs: projected.append(inputs[0]))
    output(torch.ones(1, 1000))
    assert set(projected[0].flatten().tolist()) == {0.0, 2.0}
    output.eval()(torch.ones(1, 1000))
    assert (projected[1] == 1).all()


def test_concat_applies_dropout():
    features = PreOutput(["state"], {"state": 1000}, dropout=0.5)(torch.ones(1, 1000))
    assert set(features.flatten().tolist()) == {0.0, 2.0}
