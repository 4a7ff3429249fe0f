import pytest
import torch
from torch import nn

from heedful.layers.convolution import DilatedConfigBase

KERNELS_AND_DILATIONS = [(3, (1,)), (3, (1, 2, 4)), (2, (1, 2)), (1, (1, 2)), (5, (3,))]


def stack(kernel_size=3, dilations=(1, 2), num_repeats=1, hidden_size=3):
    parts = DilatedConfigBase(
        kernel_size=kernel_size,
        dilations=dilations,
        num_repeats=num_repeats,
        hidden_size=hidden_size,
    )
    blocks = parts.build_stack().double()
    for weight in blocks.parameters():  # norms that begin alike say little
        nn.init.normal_(weight, mean=0.3)
    return blocks


def influence(outputs, inputs):
    """The input positions that an output depends on."""
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
    return (gradient[0].abs().sum(dim=-1) > 0).nonzero().flatten().tolist()


@pytest.mark.parametrize(("kernel_size", "dilations"), KERNELS_AND_DILATIONS)
@pytest.mark.parametrize("num_repeats", [1, 2])
def test_causal_stack_depends_on_the_receptive_field(kernel_size, dilations, num_repeats):
    blocks = stack(kernel_size, dilations, num_repeats, hidden_size=8)
    field = 1 + num_repeats * (kernel_size - 1) * sum(dilations)
    inputs = torch.randn(1, field + 5, 16, dtype=torch.double, requires_grad=True)
    outputs, _ = blocks(inputs, blocks.initial_state(inputs))
    positions = influence(outputs[0, field + 1], inputs)
    assert (min(positions), max(positions)) == (2, field + 1)


@pytest.mark.parametrize(("kernel_size", "dilations"), [(3, (1, 2, 4)), (5, (1, 2))])
def test_bidirectional_stack_has_symmetric_receptive_field(kernel_size, dilations):
    blocks = stack(kernel_size, dilations, hidden_size=8)
    half = (kernel_size - 1) * sum(dilations) // 2
    inputs = torch.randn(1, 2 * half + 5, 16, dtype=torch.double, requires_grad=True)
    outputs = blocks.forward_bidirectional(inputs, torch.ones(1, 2 * half + 5, dtype=torch.bool))
    positions = influence(outputs[0, half + 2], inputs)
    assert (min(positions), max(positions)) == (2, 2 * half + 2)


@pytest.mark.parametrize(("kernel_size", "dilations"), KERNELS_AND_DILATIONS)
@pytest.mark.parametrize("lengths", [(1,) * 7, (3, 4), (6, 1)])
def test_causal_stack_in_pieces_same_as_whole_sequence(kernel_size, dilations, lengths):
    blocks, inputs = stack(kernel_size, dilations), torch.randn(2, 7, 6, dtype=torch.double)
    whole, last = blocks(inputs, blocks.initial_state(inputs))
    state, pieces_out = blocks.initial_state(inputs), []
    for piece in inputs.split(lengths, dim=1):
        outputs, state = blocks(piece, state)
        pieces_out.append(outputs)
    torch.testing.assert_close(torch.cat(pieces_out, dim=1), whole)
    torch.testing.assert_close(state, last)


def test_stack_ignores_padding_in_value_and_gradient():
    blocks = stack(num_repeats=2)
    inputs = torch.randn(1, 9, 6, dtype=torch.double, requires_grad=True)
    mask = torch.arange(9)[None] < 5
    wide, narrow = (
        blocks.forward_bidirectional(inputs, mask),
        blocks.forward_bidirectional(inputs[:, :5], mask[:, :5]),
    )
    assert (wide[:, 5:] == 0).all()
    torch.testing.assert_close(wide[:, :5], narrow)
    gradients = [torch.autograd.grad(each.sin().sum(), inputs)[0] for each in (wide, narrow)]
    torch.testing.assert_close(*gradients)
    assert (gradients[0][:, 5:] == 0).all()


def test_embeddings_start_with_unit_variance():
    table = DilatedConfigBase(hidden_size=32).build_embedding(500).embedding.weight
    assert table[1:].std().item() == pytest.approx(1, rel=0.02)
    assert (table[0] == 0).all()
