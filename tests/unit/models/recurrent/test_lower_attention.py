"""A recurrent decoder whose layers attend to the layer below."""

import pytest
import torch

from heedful.attention.masks import causal_mask
from heedful.errors import ConfigError
from heedful.inspection.attention_trace import trace_attention
from heedful.layers.rnn import RecurrentLayer
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.config import RecurrentDecoderConfig

TOKENS = torch.tensor([[1, 5, 6, 7, 8], [1, 4, 3, 3, 2]])
ENCODED = EncoderOutput(
    torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.double),
    torch.tensor([3, 2]),
    final_states=(torch.zeros(2, 4).double(),) * 3,
    final_cell_states=(torch.zeros(2, 4).double(),) * 3,
)
SIZES = EncoderStateSizes((4, 4, 4))
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
COVERAGE = {"score": {"type": "additive", "features": [{"type": "coverage"}]}}


def decoder(**settings):
    """Three layers without cross-attention, so that their stack is all there is to a state."""
    plain = {"wiring": {"type": "final-state"}, "bridge": {"type": "copy"}}
    sizes = {"embedding_size": 3, "hidden_size": 4, "num_layers": 3}
    config = RecurrentDecoderConfig.model_validate(sizes | plain | settings)
    torch.manual_seed(3)
    built = config.build(vocab_size=9, memory_size=4, encoder_sizes=SIZES).double()
    for parameter in built.parameters():
        parameter.data.add_(0.5 * torch.randn_like(parameter))
    return built.eval()


def top_states(built):
    """The states of the top layer, by single steps."""
    state, states = built.initial_state(ENCODED), []
    for tokens in TOKENS.unbind(dim=1):
        state = built.step(tokens, state).state
        states.append(state.wiring.cells[-1][0])
    return torch.stack(states, dim=1)


@pytest.mark.parametrize(
    "attention",
    [
        {},
        HEADS,
        COVERAGE,
        {"score": {"type": "alibi"}, "multi_head": {"num_heads": 2}},
        {"score": {"type": "rotary"}},
        {"score": {"type": "location"}},
        {"alignment": {"type": "sparsemax"}, "readout": {"type": "gated"}},
        {"alignment": {"type": "monotonic", "inference": "expected"}},
    ],
)
@pytest.mark.parametrize("cell", ["gru", "lstm", "lstmn"])
def test_steps_equal_layers_over_the_whole_target(cell, attention):
    """One layer after another, each over all positions at once under a causal mask."""
    built = decoder(cell=cell, lower_attention=attention)
    lengths, causal = torch.full((2,), 5), causal_mask(5)
    outputs = built.embedding(TOKENS)
    for index, module in enumerate(built.wiring.cells.cells):
        if index:
            lower = module.attention.attention
            memory = lower.build_memory(outputs, causal)
            state = lower.initial_state(memory) if lower.is_stateful else None
            context = lower(outputs, memory, state).context
            outputs = torch.cat([outputs, context], dim=-1)
        cell_module = module.cell if index else module
        outputs = RecurrentLayer(forward_cell=cell_module)(outputs, lengths)
    torch.testing.assert_close(top_states(built), outputs)


def test_residual_layers_pass_on_sums():
    built = decoder(lower_attention={}, first_residual_layer=2)
    bottom, *upper = built.wiring.cells.cells
    lengths = torch.full((2,), 5)
    inputs = RecurrentLayer(forward_cell=bottom)(built.embedding(TOKENS), lengths)
    for residual in upper:
        module = residual.cell
        lower = module.attention.attention
        memory = lower.build_memory(inputs, causal_mask(5))
        cell_inputs = torch.cat([inputs, lower(inputs, memory).context], dim=-1)
        inputs = inputs + RecurrentLayer(forward_cell=module.cell)(cell_inputs, lengths)
    torch.testing.assert_close(top_states(built), inputs)


def test_copied_cell_states_reach_the_inner_cell():
    cell_states = tuple(torch.full((2, 4), layer + 1.0).double() for layer in range(3))
    built = decoder(cell="lstm", lower_attention={}, first_residual_layer=3)
    state = built.initial_state(ENCODED._replace(final_cell_states=cell_states)).wiring.cells
    for layer, index in enumerate((1, 1, 2)):  # a residual layer has its sum in front
        assert torch.equal(state[layer][index], cell_states[layer])


def test_every_step_traces_one_position_more():
    built = decoder(lower_attention=HEADS)
    with trace_attention(built) as records:
        top_states(built)
    assert {record.role for record in records} == {"self"}
    paths = [f"wiring.cells.cells.{layer}.attention.attention" for layer in (1, 2)]
    for path in paths:
        weights = [record.weights for record in records if record.module_path == path]
        assert [tuple(each.shape) for each in weights] == [(2, 2, 1, n) for n in range(1, 6)]
    assert len(records) == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_layers": 1},
            "lower_attention: needs num_layers of 2 or more, but num_layers is 1\n"
            "  add a layer, or remove the section",
        ),
        (
            {"lower_attention": {"alignment": {"type": "sampled"}}},
            "lower_attention.alignment.type: 'sampled' learns from the likelihood of target tokens",
        ),
        (
            {"lower_attention": {"readout": {"type": "per-position"}}},
            "lower_attention.readout.type: 'per-position' returns a context for every source",
        ),
    ],
)
def test_impossible_lower_attention_raises(settings, message):
    with pytest.raises(ConfigError) as error:
        decoder(**{"lower_attention": {}} | settings | {"bridge": {"type": "tanh"}})
    assert str(error.value).startswith(message)


def test_context_of_the_source_stays_last():
    """A cell may treat the last values of its input, the context of the source, differently."""
    settings = {"cell": {"type": "gru", "reset": "after-with-context"}, "lower_attention": {}}
    built = decoder(**settings, wiring={"type": "constant-context"}, bridge={"type": "tanh"})
    state, inner_inputs = built.initial_state(ENCODED), []
    for cell in built.wiring.cells.cells[1:]:
        cell.cell.register_forward_pre_hook(lambda _, args: inner_inputs.append(args[0]))
    built.step(TOKENS[:, 0], state)
    assert [tuple(inputs.shape) for inputs in inner_inputs] == [(2, 12), (2, 12)]
    for inputs in inner_inputs:
        assert torch.equal(inputs[:, 8:], state.wiring.summary)
        torch.testing.assert_close(inputs[:, :4], inputs[:, 4:8])  # one position: c_1 = x_1
