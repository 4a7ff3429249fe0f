"""Multi-head attention against torch, a loop over heads, and a single head."""

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.alignments import (
    AlignmentFunction,
    AlignmentLossInputs,
    SoftmaxAlignment,
    SparsemaxAlignment,
)
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.auxiliary_losses import DoublyStochasticLoss
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import (
    BilinearScore,
    PerHeadScore,
    ScaledDotScore,
    build_per_head_score,
)

BATCH_SIZE, NUM_QUERIES, NUM_KEYS, SIZE, HEADS = 2, 4, 4, 6, 3
HEAD_DIM = SIZE // HEADS


def multi_head(
    score=None, alignment=None, *, size=SIZE, num_kv_heads=None, bias=False, auxiliary_losses=()
):
    score = score or ScaledDotScore()
    inner = SingleHeadAttention(
        score,
        alignment or SoftmaxAlignment(),
        WeightedSumReadout(),
        auxiliary_losses=auxiliary_losses,
    )
    sizes = {"query_size": size, "memory_size": size, "head_dim": HEAD_DIM, "num_heads": HEADS}
    return MultiHeadAttention(inner, **sizes, num_kv_heads=num_kv_heads, bias=bias).double()


def vectors(*shape):
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


def split_heads(inputs, heads=HEADS):
    return inputs.unflatten(-1, (heads, -1)).transpose(1, 2)


def torch_with_same_parameters(ours):
    theirs = torch.nn.MultiheadAttention(SIZE, HEADS, bias=True, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([item.weight for item in projections(ours)]))
        theirs.in_proj_bias.copy_(torch.cat([item.bias for item in projections(ours)]))
        theirs.out_proj.weight.copy_(ours.output_projection.weight)
        theirs.out_proj.bias.copy_(ours.output_projection.bias)
    return theirs


def projections(attention):
    return [attention.query_projection, attention.key_projection, attention.value_projection]


@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
def test_multi_head_same_as_torch_in_value_and_gradient(is_causal, need_weights):
    ours = multi_head(bias=True)
    theirs = torch_with_same_parameters(ours)
    queries, values = vectors(BATCH_SIZE, NUM_QUERIES, SIZE), vectors(BATCH_SIZE, NUM_KEYS, SIZE)
    mask = padding_mask(torch.tensor([NUM_KEYS, 2]), NUM_KEYS)
    full_mask = mask & causal_mask(NUM_KEYS) if is_causal else mask
    output = ours(queries, ours.build_memory(values, full_mask), need_weights=need_weights)
    context, weights = theirs(
        queries,
        values,
        values,
        key_padding_mask=~mask.squeeze(1),
        attn_mask=~causal_mask(NUM_KEYS)[0] if is_causal else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(output.context, context)
    if need_weights:
        torch.testing.assert_close(output.alignment.weights, weights)
        torch.testing.assert_close(output.weights, weights.mean(1))
    grad_outputs = torch.randn_like(context)
    parts = projections(ours)
    weights, biases = [part.weight for part in parts], [part.bias for part in parts]
    inputs = (queries, values, ours.output_projection.weight, *weights, *biases)
    gradients = torch.autograd.grad(output.context, inputs, grad_outputs)
    inputs = (queries, values, theirs.out_proj.weight, theirs.in_proj_weight, theirs.in_proj_bias)
    torch.testing.assert_close(
        (*gradients[:3], torch.cat(gradients[3:6]), torch.cat(gradients[6:])),
        torch.autograd.grad(context, inputs, grad_outputs),
    )


def additive():
    return AdditiveScore(HEAD_DIM, HEAD_DIM, hidden_size=5)


def bilinear():
    return BilinearScore(HEAD_DIM, HEAD_DIM)


@pytest.mark.parametrize("build_score", [additive, bilinear])
@pytest.mark.parametrize("num_kv_heads", [1, HEADS])
@pytest.mark.parametrize(
    "alignment", [SoftmaxAlignment(), SparsemaxAlignment()], ids=["softmax", "sparsemax"]
)
def test_per_head_scores_match_loop_over_heads(build_score, num_kv_heads, alignment):
    ours = multi_head(
        build_per_head_score(build_score, HEADS), alignment, num_kv_heads=num_kv_heads
    )
    queries, values = vectors(BATCH_SIZE, NUM_QUERIES, SIZE), vectors(BATCH_SIZE, 5, SIZE)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    output = ours(queries, ours.build_memory(values, mask))
    contexts = []
    for head, score in enumerate(ours.score.heads):
        group = head * num_kv_heads // HEADS
        head_queries = split_heads(ours.query_projection(queries))[:, head]
        keys = split_heads(ours.key_projection(values), num_kv_heads)[:, group]
        weights = alignment(score(head_queries, score.prepare_keys(keys)), mask).weights
        torch.testing.assert_close(output.alignment.weights[:, head], weights)
        contexts.append(
            weights @ split_heads(ours.value_projection(values), num_kv_heads)[:, group]
        )
    expected = ours.output_projection(torch.cat(contexts, -1))
    torch.testing.assert_close(output.context, expected)


def test_each_head_continues_from_own_state():
    def build_score():
        return AdditiveScore(HEAD_DIM, HEAD_DIM, hidden_size=5, features=[CoverageFeature(5)])

    ours = multi_head(build_per_head_score(build_score, HEADS))
    assert ours.score.uses_history
    queries, values = vectors(BATCH_SIZE, NUM_QUERIES, SIZE), vectors(BATCH_SIZE, 5, SIZE)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    memory = ours.build_memory(values, mask)
    weights = ours(queries, memory, ours.initial_state(memory)).alignment.weights
    head_queries, keys = (
        split_heads(ours.query_projection(queries)),
        split_heads(ours.key_projection(values)),
    )
    contexts = split_heads(ours.value_projection(values))
    for head, score in enumerate(ours.score.heads):
        single = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
        memory = single.build_memory(keys[:, head], mask)._replace(values=contexts[:, head])
        expected = single(head_queries[:, head], memory, single.initial_state(memory)).weights
        torch.testing.assert_close(weights[:, head], expected)


def test_leading_dimensions_are_independent():
    ours = multi_head()
    queries, values = vectors(2, 3, NUM_QUERIES, SIZE), vectors(2, 3, 5, SIZE)
    mask = torch.rand(2, 1, 1, 5) < 0.7
    batched = ours(queries, ours.build_memory(values, mask))
    assert batched.alignment.weights.shape == (2, 3, HEADS, NUM_QUERIES, 5)
    assert batched.weights.shape == (2, 3, NUM_QUERIES, 5)
    for row in range(2):
        single = ours(queries[row], ours.build_memory(values[row], mask[row]))
        torch.testing.assert_close(batched.context[row], single.context)


def test_scores_without_parameters_shared_by_heads():
    assert isinstance(build_per_head_score(ScaledDotScore, HEADS), ScaledDotScore)
    assert isinstance(build_per_head_score(bilinear, None), BilinearScore)
    head_queries = build_per_head_score(bilinear, HEADS)
    assert isinstance(head_queries, PerHeadScore)
    assert len(list(head_queries.parameters())) == HEADS


def test_per_head_score_supports_nested_prepared_keys():
    inner = build_per_head_score(lambda: bilinear() + ScaledDotScore(), HEADS)
    outer = build_per_head_score(bilinear, HEADS) + ScaledDotScore()
    for parameter, other in zip(outer.parameters(), inner.parameters(), strict=True):
        parameter.data = other.data
    queries, keys = (
        torch.randn(BATCH_SIZE, HEADS, NUM_QUERIES, HEAD_DIM),
        torch.randn(BATCH_SIZE, 1, 5, HEAD_DIM),
    )
    prepared = inner.prepare_keys(keys)
    assert [item.shape for item in prepared] == 2 * [(BATCH_SIZE, HEADS, 5, HEAD_DIM)]
    expected = outer(queries, outer.prepare_keys(keys.expand(-1, HEADS, -1, -1)))
    torch.testing.assert_close(inner(queries, prepared), expected)


class FirstPositionLoss(SoftmaxAlignment):
    """An alignment with a loss on the weight of the first position."""

    def compute_auxiliary_losses(self, loss_inputs):
        weights = loss_inputs.alignment.weights * loss_inputs.target_mask.unsqueeze(-1)
        return {"sparing": weights[..., 0].sum()}


def test_auxiliary_losses_average_over_heads_and_alignment_losses_sum():
    alignment: AlignmentFunction = FirstPositionLoss()
    ours = multi_head(alignment=alignment, auxiliary_losses=[DoublyStochasticLoss(0.5)])
    lengths = torch.tensor([5, 2])
    memory = ours.build_memory(vectors(BATCH_SIZE, 5, SIZE), padding_mask(lengths, 5))
    output = ours(vectors(BATCH_SIZE, NUM_QUERIES, SIZE), memory).alignment
    real = torch.tensor([[True] * NUM_QUERIES, [True, True, False, False]])
    visible = padding_mask(lengths, 5).squeeze(1)
    rest = (torch.zeros(BATCH_SIZE, NUM_QUERIES), real, visible)
    actual = ours.compute_auxiliary_losses(AlignmentLossInputs(output, *rest))
    head_inputs = [
        AlignmentLossInputs(output._replace(weights=output.weights[:, head]), *rest)
        for head in range(HEADS)
    ]
    mean = sum(map(DoublyStochasticLoss(0.5), head_inputs)) / HEADS
    total = sum(alignment.compute_auxiliary_losses(each)["sparing"] for each in head_inputs)
    torch.testing.assert_close(actual, {"sparing": total, "doubly-stochastic": mean})
