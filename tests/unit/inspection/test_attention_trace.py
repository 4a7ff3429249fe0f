import inspect
import textwrap

import pytest
import torch
from torch import nn

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.hard_alignment import ArgmaxAlignmentConfig
from heedful.attention.local_alignment import LocalAlignmentConfig
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.monotonic_alignment import (
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
)
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore, ScaledDotScore
from heedful.inspection import attention_trace as module
from heedful.inspection.attention_trace import concatenate_steps, trace_attention
from tests.catalogue import batch, build, store

SYSTEM = "gru, attend-then-step"
MODULE_PATH = "decoder.wiring.attention"


def dot():
    return SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())


def heads(inner=None, *, num_heads=2):
    sizes = {"query_size": 4, "memory_size": 4, "head_dim": 3}
    return MultiHeadAttention(inner or dot(), **sizes, num_heads=num_heads)


def call_inputs(attention, rows=2, times=3, length=5):
    """Return queries and a memory of two sources, one of them padded."""
    memory = attention.build_memory(
        torch.randn(rows, length, 4), padding_mask(torch.tensor([length, 2]), length)
    )
    return torch.randn(rows, times, 4), memory


def test_every_step_of_teacher_forcing_is_recorded():
    model, examples = build(SYSTEM), batch(store(), [0, 3, 5])
    with trace_attention(model) as records:
        whole = model(examples, need_weights=True)
    assert {(record.module_path, record.role, record.layer) for record in records} == {
        (MODULE_PATH, "cross", 0)
    }
    assert [record.step for record in records] == list(range(examples.decoder_inputs.size(1)))
    for time, record in enumerate(records):
        torch.testing.assert_close(record.weights, whole.weights[:, None, time : time + 1])


def test_concatenated_decoding_steps_match_teacher_forcing():
    model, examples = build(SYSTEM), batch(store(), [0, 3, 5])
    with trace_attention(model) as records:
        state = model.initial_state(examples.sources)
        for tokens in examples.decoder_inputs.unbind(dim=1):
            state = model.step(tokens, state).state
    joined = concatenate_steps(records)
    torch.testing.assert_close(
        joined.weights, model(examples, need_weights=True).weights.unsqueeze(1)
    )
    assert joined.query_positions == tuple(range(examples.decoder_inputs.size(1)))


def test_example_of_the_module_docstring_runs(capsys):
    example = textwrap.dedent(inspect.getdoc(module).split("\n\n")[1])
    model, examples = build(SYSTEM), batch(store(), [0, 3])
    names = {
        "trace_attention": trace_attention,
        "concatenate_steps": concatenate_steps,
        "model": model,
        "batch": examples,
    }
    exec(example, names)
    torch.testing.assert_close(
        names["weights"], model(examples, need_weights=True).weights.unsqueeze(1)
    )
    places = examples.sources.tokens.size(1)
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{MODULE_PATH} cross 0 torch.Size([2, 1, 1, {places}])"


def hooks_of(model):
    return [each for part in model.modules() for each in part._forward_hooks]


def test_trace_changes_no_output_and_removes_hooks():
    model, examples = build(SYSTEM), batch(store(), [0, 3])
    before = model(examples).log_probs
    with trace_attention(model) as records:
        assert hooks_of(model) != []
        during = model(examples).log_probs
    count = len(records)
    torch.testing.assert_close(during, before, rtol=0, atol=0)
    model(examples)
    assert len(records) == count
    assert hooks_of(model) == []


def test_trace_removes_hooks_after_an_error():
    model = build(SYSTEM)
    examples = batch(store(), [0, 3])._replace(decoder_inputs=torch.tensor([[99], [99]]))
    with pytest.raises(IndexError), trace_attention(model):
        model(examples)
    assert hooks_of(model) == []


def test_all_heads_are_in_one_record():
    attention = heads()
    queries, memory = call_inputs(attention)
    with trace_attention(nn.ModuleDict({"cross": attention})) as records:
        output = attention(queries, memory)
    (record,) = records
    assert record.module_path == "cross"
    assert record.weights.shape == (2, 2, 3, 5)
    torch.testing.assert_close(record.weights, output.alignment.weights.detach())


def test_model_may_be_the_attention_itself():
    for attention in (dot(), heads()):
        with trace_attention(attention) as records:
            attention(*call_inputs(attention))
        assert [record.module_path for record in records] == [""]


def test_layer_is_the_first_number_of_the_path():
    layers = nn.ModuleList([nn.ModuleDict({"2": dot(), "x": dot()}) for _ in range(4)])
    model = nn.ModuleDict({"layers": layers})
    with trace_attention(model) as records:
        for part in (layers[3]["x"], layers[1]["2"]):
            part(*call_inputs(part))
    assert [(record.module_path, record.layer) for record in records] == [
        ("layers.3.x", 3),
        ("layers.1.2", 1),
    ]


def test_leading_dimensions_flattened():
    attention = dot()
    for leading in [(), (3,), (2, 3)]:
        values, queries = torch.randn(*leading, 5, 4), torch.randn(*leading, 2, 4)
        memory = attention.build_memory(values)
        with trace_attention(attention) as records:
            weights = attention(queries, memory).weights
        (record,) = records
        torch.testing.assert_close(record.weights, weights.reshape(-1, 1, 2, 5))


def test_records_detached_and_moved_to_the_device():
    attention = heads()
    queries, memory = call_inputs(attention)
    with trace_attention(attention, device="meta") as records:
        attention(queries, memory, attention.initial_state(memory)).context.sum().backward()
    (record,) = records
    kept = [record.weights, *record.extras.values(), *record.cumulative_weights]
    assert not any(tensor.requires_grad for tensor in kept)
    assert {tensor.device.type for tensor in kept} == {"meta"}


@pytest.mark.parametrize("make", [dot, heads])
@pytest.mark.parametrize("rows", [None, [1], [0, 2]], ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=["padding", "causal"])
def test_weights_of_a_fused_call_computed_for_requested_rows_only(make, rows, is_causal):
    attention, num_scored = make(), []
    attention.score.register_forward_hook(lambda _, args, __: num_scored.append(args[0].size(-2)))
    mask = padding_mask(torch.tensor([5, 2]), 5)
    seen = mask & causal_mask(5) if is_causal else mask
    memory, queries = attention.build_memory(torch.randn(2, 5, 4), seen), torch.randn(2, 5, 4)
    with trace_attention(attention, rows=rows) as records:
        output = attention(queries, memory, need_weights=False)
    assert output.weights is None
    picked = list(range(5)) if rows is None else rows
    assert num_scored == [len(picked)]
    (record,) = records
    assert record.query_positions == tuple(picked)
    whole = attention.compute_weights(queries, memory).weights.detach().reshape(2, -1, 5, 5)
    torch.testing.assert_close(record.weights, whole[:, :, picked])


def test_existing_weights_not_computed_again():
    attention, num_scored = dot(), []
    attention.score.register_forward_hook(lambda _, args, __: num_scored.append(args[0].size(-2)))
    with trace_attention(attention, rows=[1]) as records:
        weights = attention(*call_inputs(attention)).weights
    assert num_scored == [3]
    torch.testing.assert_close(records[0].weights[:, 0], weights[:, 1:2])


def test_query_positions_count_over_all_steps():
    model, examples = build(SYSTEM), batch(store(), [0, 5])
    with trace_attention(model, rows={2, 4}) as records:
        model(examples)
    assert [record.query_positions for record in records] == [(2,), (4,)]


def test_sequential_score_leaves_one_record():
    score = AdditiveScore(4, 4, hidden_size=5, features=[CoverageFeature(5)])
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    with trace_attention(attention) as records:
        weights = attention(*call_inputs(attention)).weights
    (record,) = records
    torch.testing.assert_close(record.weights, weights.detach().unsqueeze(1))


def test_coverage_is_the_sum_of_earlier_weights():
    attention = dot()
    queries, memory = call_inputs(attention, times=4)
    with trace_attention(attention) as records:
        past = attention(queries[:, :1], memory, attention.initial_state(memory)).state
        attention(queries[:, 1:], memory, past)
    joined = concatenate_steps(records)
    for time in range(4):
        before = joined.weights[:, :, :time].sum(2)
        torch.testing.assert_close(joined.extras["coverage"][:, :, time], before)
    torch.testing.assert_close(joined.cumulative_weights[1], joined.weights.sum(2))


def test_hard_alignment_records_position_and_probabilities():
    attention = SingleHeadAttention(
        DotScore(), ArgmaxAlignmentConfig().build(query_size=4), WeightedSumReadout()
    )
    memory = attention.build_memory(torch.randn(1, 5, 4), torch.arange(5).view(1, 1, 5) < 3)
    queries = torch.randn(1, 2, 4)
    with trace_attention(attention) as records:
        attention(queries, memory)
        attention(queries, memory._replace(mask=torch.zeros_like(memory.mask)))
    scores = (queries @ memory.values.mT)[..., :3]
    seen, unseen = records
    probabilities = seen.extras["probabilities"][..., :3]
    torch.testing.assert_close(probabilities, scores.softmax(-1).unsqueeze(1))
    assert seen.extras["selected_position"].tolist() == scores.argmax(-1).unsqueeze(1).tolist()
    assert (unseen.extras["selected_position"] == -1).all()


def test_local_alignment_records_center_and_half_width():
    centred = LocalAlignmentConfig.model_validate(
        {"center": {"type": "monotonic"}, "gaussian": "none"}
    )
    attention = SingleHeadAttention(DotScore(), centred.build(query_size=4), WeightedSumReadout())
    with trace_attention(attention) as records:
        attention(*call_inputs(attention))
    (record,) = records
    assert record.extras["centers"][0, 0].tolist() == [0, 1, 2]
    assert record.extras["half_width"][0, 0].tolist() == [10, 10, 10]


@pytest.mark.parametrize(
    "config",
    [MonotonicAlignmentConfig(bias=0), MonotonicChunkwiseAlignmentConfig()],
    ids=["one", "two"],
)
def test_monotonic_alignment_records_the_position_of_the_pointer(config):
    align = config.build(query_size=4).eval()
    attention = SingleHeadAttention(DotScore(), align, WeightedSumReadout())
    values = torch.eye(4).unsqueeze(0)
    memory = attention.build_memory(values, torch.tensor([[[True, True, True, False]]]))
    queries = 4 * torch.tensor([[[-1.0, 1, -1, 1], [-1, -1, 1, 1], [-1, -1, -1, 1]]])
    with trace_attention(attention) as records:
        attention(queries, memory)
    # The first two stop at positions 1 and 2; the last skips a masked one and passes the end.
    assert records[0].extras["expected_position"].tolist() == [[[1, 2, 3]]]


def test_soft_monotonic_pointer_has_expected_position():
    align = MonotonicAlignmentConfig(bias=0, inference="expected").build(query_size=4).eval()
    attention = SingleHeadAttention(DotScore(), align, WeightedSumReadout())
    memory = attention.build_memory(torch.zeros(1, 3, 4), torch.ones(1, 1, 3, dtype=torch.bool))
    with trace_attention(attention) as records:
        attention(torch.zeros(1, 1, 4), memory)
    # It stops at each of three positions with probability 1/2: 1/2, 1/4, 1/8, and 1/8 past them.
    expected = 0 / 2 + 1 / 4 + 2 / 8 + 3 / 8
    torch.testing.assert_close(records[0].extras["expected_position"].item(), expected)
