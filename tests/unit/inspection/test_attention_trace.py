import inspect
import textwrap

import pytest
import torch
from torch import nn

from heedful.attention import (
    AdditiveScore,
    DotScore,
    ScaledDotScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    causal_mask,
    padding_mask,
)
from heedful.attention.additive_scores import CoverageFeature
from heedful.attention.hard_alignment import ArgmaxAlignmentConfig
from heedful.attention.local_alignment import LocalAlignmentConfig
from heedful.attention.monotonic_alignment import (
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
)
from heedful.attention.multi_head import MultiHeadAttention
from heedful.inspection import attention_trace as module
from heedful.inspection.attention_trace import concatenate_steps, trace_attention
from tests.catalogue import batch, build, store

SYSTEM = "gru, attend-then-step"
SITE = "decoder.wiring.attention"


def dot():
    return SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())


def heads(inner=None, *, num_heads=2):
    sizes = {"query_size": 4, "memory_size": 4, "head_dim": 3}
    return MultiHeadAttention(inner or dot(), **sizes, num_heads=num_heads)


def asked(attention, rows=2, times=3, places=5):
    """A memory of two sources, one of them padded, and queries."""
    memory = attention.build_memory(
        torch.randn(rows, places, 4), padding_mask(torch.tensor([places, 2]), places)
    )
    return torch.randn(rows, times, 4), memory


def test_every_step_of_a_known_target_is_recorded():
    model, examples = build(SYSTEM), batch(store(), [0, 3, 5])
    with trace_attention(model) as records:
        whole = model(examples, need_weights=True)
    assert {(record.module_path, record.role, record.layer) for record in records} == {
        (SITE, "cross", 0)
    }
    assert [record.step for record in records] == list(range(examples.decoder_inputs.size(1)))
    for time, record in enumerate(records):
        torch.testing.assert_close(record.weights, whole.weights[:, None, time : time + 1])


def test_steps_of_decoding_join_to_the_map_of_the_known_target():
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


def test_the_example_of_the_module_runs(capsys):
    example = textwrap.dedent(inspect.getdoc(module).split("\n\n")[1])
    model, examples = build(SYSTEM), batch(store(), [0, 3])
    names = {
        "trace": trace_attention,
        "join_steps": concatenate_steps,
        "model": model,
        "batch": examples,
    }
    exec(example, names)
    torch.testing.assert_close(
        names["weights"], model(examples, need_weights=True).weights.unsqueeze(1)
    )
    places = examples.sources.tokens.size(1)
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{SITE} cross 0 torch.Size([2, 1, 1, {places}])"


def hooks_of(model):
    return [each for part in model.modules() for each in part._forward_hooks]


def test_a_trace_changes_nothing_and_leaves_nothing_behind():
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


def test_a_trace_that_an_error_ends_leaves_nothing_behind():
    model = build(SYSTEM)
    examples = batch(store(), [0, 3])._replace(decoder_inputs=torch.tensor([[99], [99]]))
    with pytest.raises(IndexError), trace_attention(model):
        model(examples)
    assert hooks_of(model) == []


def test_all_heads_are_one_record():
    attention = heads()
    queries, memory = asked(attention)
    with trace_attention(nn.ModuleDict({"cross": attention})) as records:
        attended = attention(queries, memory)
    (record,) = records
    assert record.module_path == "cross"
    assert record.weights.shape == (2, 2, 3, 5)
    torch.testing.assert_close(record.weights, attended.alignment.weights.detach())


def test_the_model_may_be_the_attention():
    for attention in (dot(), heads()):
        with trace_attention(attention) as records:
            attention(*asked(attention))
        assert [record.module_path for record in records] == [""]


def test_the_layer_is_the_first_number_of_the_path():
    layers = nn.ModuleList([nn.ModuleDict({"2": dot(), "x": dot()}) for _ in range(4)])
    model = nn.ModuleDict({"layers": layers})
    with trace_attention(model) as records:
        for part in (layers[3]["x"], layers[1]["2"]):
            part(*asked(part))
    assert [(each.module_path, each.layer) for each in records] == [
        ("layers.3.x", 3),
        ("layers.1.2", 1),
    ]


def test_any_leading_dimensions_are_one():
    attention = dot()
    for leading in [(), (3,), (2, 3)]:
        values, queries = torch.randn(*leading, 5, 4), torch.randn(*leading, 2, 4)
        memory = attention.build_memory(values, torch.ones(1, 5, dtype=torch.bool))
        with trace_attention(attention) as records:
            weights = attention(queries, memory).weights
        (record,) = records
        torch.testing.assert_close(record.weights, weights.reshape(-1, 1, 2, 5))


def test_records_take_no_part_in_gradients_and_are_kept_where_asked():
    attention = heads()
    queries, memory = asked(attention)
    with trace_attention(attention, device="meta") as records:
        attention(queries, memory, attention.initial_state(memory)).context.sum().backward()
    (record,) = records
    kept = [record.weights, *record.extras.values(), *record.cumulative_weights]
    assert not any(each.requires_grad for each in kept)
    assert {each.device.type for each in kept} == {"meta"}


@pytest.mark.parametrize("make", [dot, heads])
@pytest.mark.parametrize("rows", [None, [1], [0, 2]], ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=["padding", "causal"])
def test_only_the_rows_asked_for_are_made_where_a_fast_form_made_none(make, rows, is_causal):
    attention, asked_about = make(), []
    attention.score.register_forward_hook(lambda _, args, __: asked_about.append(args[0].size(-2)))
    mask = padding_mask(torch.tensor([5, 2]), 5)
    seen = mask & causal_mask(5) if is_causal else mask
    memory, queries = attention.build_memory(torch.randn(2, 5, 4), seen), torch.randn(2, 5, 4)
    with trace_attention(attention, rows=rows) as records:
        attended = attention(queries, memory, need_weights=False)
    assert attended.weights is None
    picked = list(range(5)) if rows is None else rows
    assert asked_about == [len(picked)]
    (record,) = records
    assert record.query_positions == tuple(picked)
    whole = attention.compute_weights(queries, memory).weights.detach().reshape(2, -1, 5, 5)
    torch.testing.assert_close(record.weights, whole[:, :, picked])


def test_nothing_is_made_twice_where_weights_are_there():
    attention, asked_about = dot(), []
    attention.score.register_forward_hook(lambda _, args, __: asked_about.append(args[0].size(-2)))
    with trace_attention(attention, rows=[1]) as records:
        weights = attention(*asked(attention)).weights
    assert asked_about == [3]
    torch.testing.assert_close(records[0].weights[:, 0], weights[:, 1:2])


def test_rows_are_numbered_over_all_steps():
    model, examples = build(SYSTEM), batch(store(), [0, 5])
    with trace_attention(model, rows={2, 4}) as records:
        model(examples)
    assert [record.query_positions for record in records] == [(2,), (4,)]


def test_a_score_that_waits_for_each_query_leaves_one_record_for_all():
    score = AdditiveScore(4, 4, hidden_size=5, features=[CoverageFeature(5)])
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    with trace_attention(attention) as records:
        weights = attention(*asked(attention)).weights
    (record,) = records
    torch.testing.assert_close(record.weights, weights.detach().unsqueeze(1))


def test_coverage_is_what_was_looked_at_before():
    attention = dot()
    queries, memory = asked(attention, times=4)
    with trace_attention(attention) as records:
        past = attention(queries[:, :1], memory, attention.initial_state(memory)).state
        attention(queries[:, 1:], memory, past)
    joined = concatenate_steps(records)
    for time in range(4):
        before = joined.weights[:, :, :time].sum(2)
        torch.testing.assert_close(joined.extras["coverage"][:, :, time], before)
    torch.testing.assert_close(joined.cumulative_weights[1], joined.weights.sum(2))


def test_what_chose_a_place_tells_it_and_from_what():
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
    assert seen.extras["mlm_probability"].tolist() == scores.argmax(-1).unsqueeze(1).tolist()
    assert (unseen.extras["mlm_probability"] == -1).all()


def test_a_window_tells_its_centre_and_its_reach():
    centred = LocalAlignmentConfig.model_validate(
        {"center": {"type": "monotonic"}, "gaussian": "none"}
    )
    attention = SingleHeadAttention(DotScore(), centred.build(query_size=4), WeightedSumReadout())
    with trace_attention(attention) as records:
        attention(*asked(attention))
    (record,) = records
    assert record.extras["centres"][0, 0].tolist() == [0, 1, 2]
    assert record.extras["reach"][0, 0].tolist() == [10, 10, 10]


@pytest.mark.parametrize(
    "config",
    [MonotonicAlignmentConfig(bias=0), MonotonicChunkwiseAlignmentConfig()],
    ids=["one", "two"],
)
def test_a_monotonic_pointer_tells_how_far_it_got(config):
    align = config.build(query_size=4).eval()
    attention = SingleHeadAttention(DotScore(), align, WeightedSumReadout())
    values = torch.eye(4).unsqueeze(0)
    memory = attention.build_memory(values, torch.tensor([[[True, True, True, False]]]))
    queries = 4 * torch.tensor([[[-1.0, 1, -1, 1], [-1, -1, 1, 1], [-1, -1, -1, 1]]])
    with trace_attention(attention) as records:
        attention(queries, memory)
    # The first two are called to places 1 and 2; the last to a hidden one, and walks off the end.
    assert records[0].extras["frontier"].tolist() == [[[1, 2, 3]]]


def test_a_pointer_of_chances_is_where_it_is_expected():
    align = MonotonicAlignmentConfig(bias=0, inference="expected").build(query_size=4).eval()
    attention = SingleHeadAttention(DotScore(), align, WeightedSumReadout())
    memory = attention.build_memory(torch.zeros(1, 3, 4), torch.ones(1, 1, 3, dtype=torch.bool))
    with trace_attention(attention) as records:
        attention(torch.zeros(1, 1, 4), memory)
    # It stops with even chances at each of three places: 1/2, 1/4, 1/8, and 1/8 beyond them.
    expected = 0 / 2 + 1 / 4 + 2 / 8 + 3 / 8
    torch.testing.assert_close(records[0].extras["frontier"].item(), expected)
