"""Many heads against torch's own, against a loop over heads, and against none."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention import (
    AdditiveScore,
    BilinearScore,
    ScaledDotScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    SparsemaxAlignment,
    WeightedSumReadout,
    causal_mask,
    padding_mask,
)
from heedful.attention.additive_scores import CoverageFeature
from heedful.attention.alignments import AlignmentFunction
from heedful.attention.auxiliary_losses import DoublyStochasticLoss
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.outputs import AlignmentLossInputs
from heedful.attention.scores import PerHeadScore, build_per_head_score
from heedful.errors import DataError
from heedful.pytree import select_rows

ROWS, TIMES, PLACES, SIZE, HEADS = 2, 4, 4, 6, 3
WIDTH = SIZE // HEADS


def many(score=None, align=None, *, size=SIZE, groups=None, bias=False, auxiliary_losses=()):
    score = score or ScaledDotScore()
    inner = SingleHeadAttention(
        score, align or SoftmaxAlignment(), WeightedSumReadout(), auxiliary_losses=auxiliary_losses
    )
    sizes = {"query_size": size, "memory_size": size, "head_dim": WIDTH, "num_heads": HEADS}
    return MultiHeadAttention(inner, **sizes, num_kv_heads=groups, bias=bias).double()


def vectors(*shape):
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


def part(inputs, heads=HEADS):
    return inputs.unflatten(-1, (heads, -1)).transpose(1, 2)


def as_torch_has_it(ours):
    theirs = torch.nn.MultiheadAttention(SIZE, HEADS, bias=True, batch_first=True).double()
    inward = [ours.query_projection, ours.key_projection, ours.value_projection]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([each.weight for each in inward]))
        theirs.in_proj_bias.copy_(torch.cat([each.bias for each in inward]))
        theirs.out_proj.weight.copy_(ours.output_projection.weight)
        theirs.out_proj.bias.copy_(ours.output_projection.bias)
    return theirs


@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
def test_scaled_dot_heads_are_those_of_torch_in_value_and_gradient(is_causal, need_weights):
    ours = many(bias=True)
    theirs = as_torch_has_it(ours)
    queries, values = vectors(ROWS, TIMES, SIZE), vectors(ROWS, PLACES, SIZE)
    mask = padding_mask(torch.tensor([PLACES, 2]), PLACES)
    seen = mask & causal_mask(PLACES) if is_causal else mask
    attended = ours(queries, ours.build_memory(values, seen), need_weights=need_weights)
    context, weights = theirs(
        queries,
        values,
        values,
        key_padding_mask=~mask.squeeze(1),
        attn_mask=~causal_mask(PLACES) if is_causal else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(attended.context, context)
    if need_weights:
        torch.testing.assert_close(attended.alignment.weights, weights)
        torch.testing.assert_close(attended.weights, weights.mean(1))
    slopes = torch.randn_like(context)
    inputs = queries, values
    torch.testing.assert_close(
        torch.autograd.grad(attended.context, (*inputs, *ours.parameters()), slopes)[:2],
        torch.autograd.grad(context, inputs, slopes),
    )


def test_every_projection_learns_as_those_of_torch():
    ours = many(bias=True)
    theirs = as_torch_has_it(ours)
    queries, values = vectors(ROWS, TIMES, SIZE), vectors(ROWS, PLACES, SIZE)
    mask = padding_mask(torch.tensor([PLACES, 2]), PLACES)
    ours(queries, ours.build_memory(values, mask)).context.square().sum().backward()
    hidden = ~mask.squeeze(1)
    theirs(queries, values, values, key_padding_mask=hidden)[0].square().sum().backward()
    inward = [ours.query_projection, ours.key_projection, ours.value_projection]
    weight = torch.cat([each.weight.grad for each in inward])
    torch.testing.assert_close(weight, theirs.in_proj_weight.grad)
    bias = torch.cat([each.bias.grad for each in inward])
    torch.testing.assert_close(bias, theirs.in_proj_bias.grad)
    torch.testing.assert_close(ours.output_projection.weight.grad, theirs.out_proj.weight.grad)


@pytest.mark.parametrize("groups", [1, HEADS])
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
def test_groups_share_keys_and_values_as_torch_shares_them(groups, need_weights):
    ours = many(groups=groups)
    queries, values = vectors(ROWS, TIMES, SIZE), vectors(ROWS, 5, SIZE)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    memory = ours.build_memory(values, mask)
    assert memory.values.shape == (ROWS, groups, 5, WIDTH)
    heads = scaled_dot_product_attention(
        part(ours.query_projection(queries)),
        part(ours.key_projection(values), groups),
        part(ours.value_projection(values), groups),
        attn_mask=mask.unsqueeze(1),
        enable_gqa=True,
    )
    wanted = ours.output_projection(heads.transpose(1, 2).flatten(2))
    context = ours(queries, memory, need_weights=need_weights).context
    torch.testing.assert_close(context, wanted)
    slopes = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad(context, (queries, values), slopes),
        torch.autograd.grad(wanted, (queries, values), slopes),
    )


def additive():
    return AdditiveScore(WIDTH, WIDTH, hidden_size=5)


def bilinear():
    return BilinearScore(WIDTH, WIDTH)


@pytest.mark.parametrize("make", [additive, bilinear])
@pytest.mark.parametrize("groups", [1, HEADS])
@pytest.mark.parametrize(
    "align", [SoftmaxAlignment(), SparsemaxAlignment()], ids=["softmax", "sparsemax"]
)
def test_heads_with_scores_of_their_own_are_a_loop_over_heads(make, groups, align):
    ours = many(build_per_head_score(make, HEADS), align, groups=groups)
    queries, values = vectors(ROWS, TIMES, SIZE), vectors(ROWS, 5, SIZE)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    attended = ours(queries, ours.build_memory(values, mask))
    taken = []
    for number, score in enumerate(ours.score.heads):
        group = number * groups // HEADS
        own = part(ours.query_projection(queries))[:, number]
        keys = part(ours.key_projection(values), groups)[:, group]
        weights = align(score(own, score.prepare_keys(keys)), mask).weights
        torch.testing.assert_close(attended.alignment.weights[:, number], weights)
        taken.append(weights @ part(ours.value_projection(values), groups)[:, group])
    wanted = ours.output_projection(torch.cat(taken, -1))
    torch.testing.assert_close(attended.context, wanted)


def test_neighbouring_heads_share_a_group():
    inner = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())
    sizes = {"query_size": 8, "memory_size": 8, "head_dim": 2}
    ours = MultiHeadAttention(inner, **sizes, num_heads=4, num_kv_heads=2)
    queries, values = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    memory = ours.build_memory(values, torch.ones(1, 1, 5, dtype=torch.bool))
    own = part(ours.query_projection(queries), 4)
    for number in range(4):
        keys = part(ours.key_projection(values), 2)[:, number // 2]
        wanted = (own[:, number] @ keys.mT / 2**0.5).softmax(-1)
        weights = ours(queries, memory).alignment.weights[:, number]
        torch.testing.assert_close(weights, wanted)


def alone(score):
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    head = MultiHeadAttention(
        attention, query_size=SIZE, memory_size=SIZE, num_heads=1, head_dim=SIZE
    ).double()
    head.eval()  # in training a past begins with a draw
    with torch.no_grad():
        for projection in head.children():
            if isinstance(projection, torch.nn.Linear):
                projection.weight.copy_(torch.eye(SIZE))
    return head, attention


def looking_back():
    return AdditiveScore(SIZE, SIZE, hidden_size=5, features=[CoverageFeature(5)])


@pytest.mark.parametrize(
    "score",
    [ScaledDotScore(), BilinearScore(SIZE, SIZE), looking_back()],
    ids=["scaled-dot", "bilinear", "coverage"],
)
def test_one_head_that_projects_nothing_is_no_head(score):
    head, attention = alone(score)
    queries, values = vectors(ROWS, TIMES, SIZE), vectors(ROWS, 5, SIZE)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    memory, plain = head.build_memory(values, mask), attention.build_memory(values, mask)
    found = head(queries, memory, head.initial_state(memory))
    wanted = attention(queries, plain, attention.initial_state(plain))
    torch.testing.assert_close(found.context, wanted.context)
    torch.testing.assert_close(found.weights, wanted.weights)
    for with_head, without in zip(found.state, wanted.state, strict=True):
        torch.testing.assert_close(with_head.squeeze(1), without)


def test_each_head_goes_on_from_its_own_past():
    def make():
        return AdditiveScore(WIDTH, WIDTH, hidden_size=5, features=[CoverageFeature(5)])

    ours = many(build_per_head_score(make, HEADS))
    assert ours.score.uses_history
    queries, values = vectors(ROWS, TIMES, SIZE), vectors(ROWS, 5, SIZE)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    memory = ours.build_memory(values, mask)
    weights = ours(queries, memory, ours.initial_state(memory)).alignment.weights
    own, keys = part(ours.query_projection(queries)), part(ours.key_projection(values))
    taken = part(ours.value_projection(values))
    for number, score in enumerate(ours.score.heads):
        head = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
        memory = head.build_memory(keys[:, number], mask)._replace(values=taken[:, number])
        wanted = head(own[:, number], memory, head.initial_state(memory)).weights
        torch.testing.assert_close(weights[:, number], wanted)


def test_rows_of_memory_and_past_can_be_selected_and_repeated():
    ours = many(build_per_head_score(additive, HEADS), groups=1)
    queries, values = vectors(3, 1, SIZE), vectors(3, 5, SIZE)
    memory = ours.build_memory(values, padding_mask(torch.tensor([5, 2, 4]), 5))
    first, rows = ours(queries, memory, ours.initial_state(memory)), torch.tensor([2, 0, 0])
    whole = ours(queries, memory, first.state)
    picked = ours(queries[rows], select_rows(memory, rows), select_rows(first.state, rows))
    torch.testing.assert_close(picked.context, whole.context[rows])
    torch.testing.assert_close(picked.state.coverage, whole.state.coverage[rows])


def test_leading_dimensions_are_free():
    ours = many()
    queries, values = vectors(2, 3, TIMES, SIZE), vectors(2, 3, 5, SIZE)
    mask = torch.rand(2, 1, 1, 5) < 0.7
    together = ours(queries, ours.build_memory(values, mask))
    assert together.alignment.weights.shape == (2, 3, HEADS, TIMES, 5)
    assert together.weights.shape == (2, 3, TIMES, 5)
    for row in range(2):
        alone = ours(queries[row], ours.build_memory(values[row], mask[row]))
        torch.testing.assert_close(together.context[row], alone.context)


def test_scores_with_nothing_to_learn_are_shared_by_all_heads():
    assert isinstance(build_per_head_score(ScaledDotScore, HEADS), ScaledDotScore)
    assert isinstance(build_per_head_score(bilinear, None), BilinearScore)
    own = build_per_head_score(bilinear, HEADS)
    assert isinstance(own, PerHeadScore)
    assert len(list(own.parameters())) == HEADS


def test_prepared_keys_may_be_nested():
    within = build_per_head_score(lambda: bilinear() + ScaledDotScore(), HEADS)
    around = build_per_head_score(bilinear, HEADS) + ScaledDotScore()
    for one, other in zip(around.parameters(), within.parameters(), strict=True):
        one.data = other.data
    queries, keys = torch.randn(ROWS, HEADS, TIMES, WIDTH), torch.randn(ROWS, 1, 5, WIDTH)
    prepared = within.prepare_keys(keys)
    assert [each.shape for each in prepared] == 2 * [(ROWS, HEADS, 5, WIDTH)]
    wanted = around(queries, around.prepare_keys(keys.expand(-1, HEADS, -1, -1)))
    torch.testing.assert_close(within(queries, prepared), wanted)


def test_a_source_without_positions_is_refused():
    with pytest.raises(DataError) as caught:
        many().build_memory(vectors(2, 0, SIZE), torch.ones(2, 1, 0, dtype=torch.bool))
    assert str(caught.value) == (
        "attention: there is nothing to attend to: the source has no positions\n"
        "  leave empty sources out, or end each with a symbol"
    )


class Sparing(SoftmaxAlignment):
    """An alignment that wants little weight on the first place."""

    def compute_auxiliary_losses(self, loss_inputs):
        weights = loss_inputs.alignment.weights * loss_inputs.target_mask.unsqueeze(-1)
        return {"sparing": weights[..., 0].sum()}


def test_a_penalty_is_the_mean_over_heads_and_what_an_alignment_needs_their_sum():
    align: AlignmentFunction = Sparing()
    ours = many(align=align, auxiliary_losses=[DoublyStochasticLoss(0.5)])
    lengths = torch.tensor([5, 2])
    memory = ours.build_memory(vectors(ROWS, 5, SIZE), padding_mask(lengths, 5))
    aligned = ours(vectors(ROWS, TIMES, SIZE), memory).alignment
    real = torch.tensor([[True] * TIMES, [True, True, False, False]])
    visible = padding_mask(lengths, 5).squeeze(1)
    found = ours.compute_auxiliary_losses(
        AlignmentLossInputs(aligned, torch.zeros(ROWS, TIMES), real, visible)
    )
    each = []
    for number in range(HEADS):
        own = aligned._replace(weights=aligned.weights[:, number])
        looked = AlignmentLossInputs(own, torch.zeros(ROWS, TIMES), real, visible)
        each.append(
            (DoublyStochasticLoss(0.5)(looked), align.compute_auxiliary_losses(looked)["sparing"])
        )
    auxiliary_losses, needs = zip(*each, strict=True)
    assert found.keys() == {"sparing", "doubly-stochastic"}
    torch.testing.assert_close(found["doubly-stochastic"], sum(auxiliary_losses) / HEADS)
    torch.testing.assert_close(found["sparing"], sum(needs))


def test_what_it_is_made_of_can_be_reached():
    ours = many()
    assert ours.score is ours.inner.score
    assert ours.alignment_function is ours.inner.alignment_function
    assert ours.readout is ours.inner.readout
    assert ours.role == "cross"
