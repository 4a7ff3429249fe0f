"""The adaptive wiring, and the attention with a sentinel that it uses."""

import pytest
import torch

from heedful.attention.alignments import AlignmentLossInputs
from heedful.attention.auxiliary_losses import DoublyStochasticLoss
from heedful.attention.config import AttentionConfig
from heedful.attention.sentinel import SentinelAttention
from heedful.errors import ConfigError
from heedful.inspection.attention_trace import concatenate_steps, trace_attention
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig

SIZE, LENGTHS = 6, torch.tensor([5, 3])
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
ATTENTIONS = {
    "additive": {},
    "sparsemax": {"alignment": {"type": "sparsemax"}},
    "gated": {"readout": {"type": "gated"}},
    "heads": HEADS,
    "additive heads": {"multi_head": {"num_heads": 3, "num_kv_heads": 1}},
}
each_attention = pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)


def build(**settings):
    torch.manual_seed(1)
    sizes = {"embedding_size": 3, "hidden_size": SIZE, "wiring": {"type": "adaptive"}}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    return config.build(vocab_size=9, memory_size=SIZE).double().eval()


def source():
    torch.manual_seed(2)
    return EncoderOutput(torch.randn(2, 5, SIZE, dtype=torch.double), LENGTHS)


def tokens(count=4):
    return torch.randint(3, 9, (2, count), generator=torch.Generator().manual_seed(3))


def attention_and_memory(settings):
    torch.manual_seed(5)
    config = AttentionConfig.model_validate(settings)
    inner = config.build(query_size=SIZE, memory_size=SIZE).double()
    return SentinelAttention(inner), inner.build_memory(source().states, source().mask)


@each_attention
def test_sentinel_is_one_more_position(attention):
    """Attention to a source whose last state is the sentinel gives the same context."""
    sentinel_attention, memory = attention_and_memory(attention)
    sentinel, queries = torch.randn(2, 2, SIZE, dtype=torch.double).unbind(dim=0)
    queries = queries.unsqueeze(1)
    extended = sentinel_attention.append_sentinel(memory, sentinel, sentinel)
    output = sentinel_attention(queries, extended)
    states = torch.cat([source().states, sentinel.unsqueeze(1)], dim=1)
    mask = torch.cat([source().mask.squeeze(1), torch.ones(2, 1, dtype=torch.bool)], dim=1)
    inner = sentinel_attention.inner
    expected = inner(queries, inner.build_memory(states, mask))
    torch.testing.assert_close(output.context, expected.context)
    torch.testing.assert_close(output.weights, expected.weights[..., :-1])
    torch.testing.assert_close(output.alignment.gates, expected.alignment.weights[..., -1])


def test_without_other_positions_context_is_the_sentinel():
    attention, memory = attention_and_memory({})
    memory = memory._replace(mask=torch.zeros_like(memory.mask))
    sentinel, key = torch.randn(2, 2, SIZE, dtype=torch.double).unbind(dim=0)
    output = attention(key.unsqueeze(1), attention.append_sentinel(memory, sentinel, key))
    torch.testing.assert_close(output.context.squeeze(1), sentinel)
    torch.testing.assert_close(output.alignment.gates, torch.ones(2, 1, dtype=torch.double))


def test_losses_are_those_of_the_source_positions():
    decoder = build(attention={"auxiliary_losses": [{"type": "doubly-stochastic"}]})
    output = decoder(tokens(), source())
    ((attention, alignment),) = output.attention_records
    mask = torch.ones(2, 4, dtype=torch.bool)
    inputs = AlignmentLossInputs(alignment, torch.zeros(2, 4), mask, source().mask.squeeze(1))
    losses = attention.compute_auxiliary_losses(inputs)
    torch.testing.assert_close(losses, {"doubly-stochastic": DoublyStochasticLoss()(inputs)})
    assert attention.has_auxiliary_losses


@each_attention
def test_trace_records_source_weights_and_gates(attention):
    decoder = build(attention=attention)
    with trace_attention(decoder) as records:
        output = decoder(tokens(), source())
    record = concatenate_steps(records)
    assert record.module_path == "wiring.attention"
    torch.testing.assert_close(record.weights.mean(dim=1), output.weights)
    gates = record.extras["gates"].mean(dim=1)
    torch.testing.assert_close(gates, 1 - output.weights.sum(dim=-1))


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_cells_without_cell_state_gate_output(cell):
    decoder, encoded = build(cell=cell, num_layers=2), source()
    wiring, state = decoder.wiring, decoder.initial_state(encoded)
    memories = []
    wiring.attention.register_forward_hook(lambda _, args, output: memories.append(args[1]))
    after = decoder.step(tokens()[:, 0], state).state.wiring.cells
    inputs = torch.cat([after[0][0], state.wiring.cells[1][0]], dim=-1)
    expected = wiring.gate(inputs).sigmoid() * after[1][0]
    torch.testing.assert_close(memories[0].values[:, -1], expected)


def test_cell_state_of_another_size_is_projected():
    decoder = build(cell={"type": "lstm", "cell_state_size": 8})
    assert decoder.wiring.sentinel_value.weight.shape == (SIZE, 8)
    assert decoder(tokens(), source()).log_probs.isfinite().all()


def test_summary_loads_only_if_set():
    encoded = source()
    other = encoded._replace(pooled=torch.randn(2, SIZE, dtype=torch.double))
    for reads_summary in (True, False):
        wiring = {"type": "adaptive", "reads_summary": reads_summary}
        decoder = build(wiring=wiring, bridge={"type": "zeros"})
        outputs = [decoder(tokens(), each).log_probs for each in (encoded, other)]
        assert torch.equal(*outputs) != reads_summary


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"attention": {"score": {"type": "additive", "features": [{"type": "coverage"}]}}},
            "attention.score.type: a sentinel has no position, but this score depends on positions "
            "or earlier weights\n"
            "  choose a score of contents, such as 'additive' without features, or 'scaled-dot'",
        ),
        (
            {"attention": {"score": {"type": "location"}}},
            "attention.score.type: a sentinel has no position, but this score depends on positions "
            "or earlier weights\n"
            "  choose a score of contents, such as 'additive' without features, or 'scaled-dot'",
        ),
        (
            {"attention": {"alignment": {"type": "sampled"}}},
            "attention.alignment.type: a sentinel needs an alignment in which positions do not "
            "matter\n"
            "  choose 'softmax'",
        ),
        (
            {"attention": {"readout": {"type": "per-position"}}},
            "attention.readout.type: a sentinel needs a readout with one context per query\n"
            "  choose 'weighted-sum'",
        ),
        (
            {"output_head": {"type": "pointer-generator"}},
            "output_head.type: output head 'pointer-generator' needs weights that sum to one, "
            "without a sentinel\n"
            "  choose 'softmax', or the wiring 'step-then-attend'",
        ),
        (
            {"pre_output": {"type": "state-only"}},
            "pre_output.type: 'state-only' leaves out the context, which this wiring uses nowhere "
            "else\n"
            "  choose 'tanh', 'maxout' or 'concat', or another wiring",
        ),
        (
            {"bridge": {"type": "first-input"}},
            "bridge.type: 'first-input' reads the source before the first step, but this wiring "
            "attends\n"
            "  choose the bridge 'tanh' or 'mlp', or the wiring 'final-state'",
        ),
        (
            {"pre_output": {"type": "sum"}, "hidden_size": 4},
            "pre_output.type: 'sum' needs vectors of one size, but they are: context 6, state 4\n"
            "  make hidden_size the memory size, or choose 'tanh' or 'deep-output'",
        ),
    ],
    ids=lambda item: None if isinstance(item, dict) else item.split(":")[0],
)
def test_settings_that_do_not_fit_raise(settings, message):
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    assert str(caught.value) == message
