import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention import (
    AdditiveScore,
    DotScore,
    Memory,
    SingleHeadAttention,
    SoftmaxAlignment,
    SparsemaxAlignment,
    WeightedSumReadout,
    padding_mask,
)
from heedful.attention.additive_scores import CoverageFeature
from heedful.errors import DataError
from heedful.pytree import select_rows

PLAIN = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())


def all_visible(rows, places):
    return torch.ones(rows, 1, places, dtype=torch.bool)


def test_dot_softmax_expectation_is_what_torch_computes():
    queries, values = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    ours = PLAIN(queries, PLAIN.build_memory(values, mask)).context
    theirs = scaled_dot_product_attention(queries, values, values, attn_mask=mask, scale=1.0)
    torch.testing.assert_close(ours, theirs)


def test_the_context_is_the_mean_of_the_values_under_the_weights():
    memory = PLAIN.build_memory(torch.randn(1, 3, 4), all_visible(1, 3))
    context, weights, *_ = PLAIN(torch.randn(1, 1, 4), memory)
    by_hand = sum(weights[0, 0, place] * memory.values[0, place] for place in range(3))
    torch.testing.assert_close(context[0, 0], by_hand)


def test_keys_are_prepared_once_and_not_per_question():
    calls = []

    class ProgressReporter(DotScore):
        def prepare_keys(self, keys):
            calls.append(keys)
            return super().prepare_keys(keys)

    attention = SingleHeadAttention(ProgressReporter(), SoftmaxAlignment(), WeightedSumReadout())
    memory = attention.build_memory(torch.randn(1, 3, 4), all_visible(1, 3))
    for _ in range(5):
        attention(torch.randn(1, 1, 4), memory)
    assert len(calls) == 1


def test_rows_of_a_memory_can_be_selected_and_repeated():
    memory = PLAIN.build_memory(torch.randn(3, 2, 4), padding_mask(torch.tensor([1, 2, 2]), 2))
    rows = torch.tensor([2, 0, 0])
    chosen = select_rows(memory, rows)
    assert isinstance(chosen, Memory)
    for part, whole in zip(chosen, memory, strict=True):
        torch.testing.assert_close(part, whole[rows])


def test_a_source_without_positions_is_refused():
    with pytest.raises(DataError) as caught:
        PLAIN.build_memory(torch.zeros(2, 0, 4), torch.ones(2, 1, 0, dtype=torch.bool))
    assert str(caught.value) == (
        "attention: there is nothing to attend to: the source has no positions\n"
        "  leave empty sources out, or end each with a symbol"
    )


def test_the_past_counts_queries_adds_weights_up_and_keeps_the_last():
    memory = PLAIN.build_memory(torch.randn(2, 3, 4), padding_mask(torch.tensor([3, 2]), 3))
    first = PLAIN(torch.randn(2, 2, 4), memory, PLAIN.initial_state(memory))
    second = PLAIN(torch.randn(2, 1, 4), memory, first.state)
    assert second.state.num_queries.tolist() == [3, 3]
    torch.testing.assert_close(second.state.last_weights, second.weights[:, 0])
    total = first.weights.sum(1) + second.weights.sum(1)
    torch.testing.assert_close(second.state.coverage, total)
    torch.testing.assert_close(second.state.last_context, second.context[:, 0])


def test_a_past_comes_out_only_where_one_came_in():
    values, queries = torch.randn(1, 3, 4), torch.randn(1, 2, 4)
    looking_back = AdditiveScore(4, 4, hidden_size=5, features=[CoverageFeature(5)])
    for score in (DotScore(), looking_back):
        attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
        memory = attention.build_memory(values, all_visible(1, 3))
        assert attention(queries, memory).state is None
        assert attention(queries, memory, attention.initial_state(memory)).state is not None


def test_the_past_that_begins_is_drawn_in_training_alone():
    attention = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())
    memory = attention.build_memory(torch.randn(50, 3, 4), all_visible(50, 3))
    drawn = attention.train().initial_state(memory).uniform_sample
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert drawn.unique().numel() == 50
    assert (attention.eval().initial_state(memory).uniform_sample == 1).all()


def test_a_score_that_looks_back_sees_where_each_query_before_it_looked():
    score = AdditiveScore(4, 4, hidden_size=5, features=[CoverageFeature(5)]).double()
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    mask = torch.ones(3, 3, dtype=torch.bool).tril()  # one row for each query
    values, queries = torch.randn(1, 3, 4).double(), torch.randn(1, 3, 4).double()
    weights = attention(queries, attention.build_memory(values, mask)).weights[0]
    total = torch.zeros(3, dtype=torch.double)
    for place in range(3):
        hidden = score.query_projection(queries[0, place]) + score.key_projection(values[0])
        hidden = hidden + score.features[0].projection(total[:, None])
        called = score.score_vector(hidden.tanh()).squeeze(-1)
        by_hand = called[: place + 1].softmax(-1)
        torch.testing.assert_close(weights[place, : place + 1], by_hand)
        total = total + weights[place]


def test_weights_that_are_not_needed_are_not_made_where_the_context_does_without():
    memory = PLAIN.build_memory(torch.randn(2, 3, 4), padding_mask(torch.tensor([3, 2]), 3))
    queries = torch.randn(2, 2, 4)
    attended = PLAIN(queries, memory, need_weights=False)
    assert attended[1:] == (None, None, None)
    torch.testing.assert_close(attended.context, PLAIN(queries, memory).context)


def test_weights_are_made_where_a_past_is_carried_or_no_form_does_without():
    memory = PLAIN.build_memory(torch.randn(2, 3, 4), padding_mask(torch.tensor([3, 2]), 3))
    queries = torch.randn(2, 2, 4)
    carried = PLAIN(queries, memory, PLAIN.initial_state(memory), need_weights=False)
    assert carried.weights is not None
    sparse = SingleHeadAttention(DotScore(), SparsemaxAlignment(), WeightedSumReadout())
    assert sparse(queries, memory, need_weights=False).weights is not None
