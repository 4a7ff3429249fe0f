import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import padding_mask
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore
from heedful.errors import DataError

DOT_ATTENTION = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())


def all_visible(rows, positions):
    return torch.ones(rows, 1, positions, dtype=torch.bool)


def test_keys_prepared_once_per_memory():
    calls = []

    class CountingScore(DotScore):
        def prepare_keys(self, keys):
            calls.append(keys)
            return super().prepare_keys(keys)

    attention = SingleHeadAttention(CountingScore(), SoftmaxAlignment(), WeightedSumReadout())
    memory = attention.build_memory(torch.randn(1, 3, 4), all_visible(1, 3))
    for _ in range(5):
        attention(torch.randn(1, 1, 4), memory)
    assert len(calls) == 1


def test_empty_source_raises():
    with pytest.raises(DataError) as error:
        DOT_ATTENTION.build_memory(torch.zeros(2, 0, 4), torch.ones(2, 1, 0, dtype=torch.bool))
    assert str(error.value) == (
        "attention: the source sequence is empty\n"
        "  remove empty lines, or append EOS to every source"
    )


def test_state_counts_queries_and_adds_weights():
    memory = DOT_ATTENTION.build_memory(torch.randn(2, 3, 4), padding_mask(torch.tensor([3, 2]), 3))
    first = DOT_ATTENTION(torch.randn(2, 2, 4), memory, DOT_ATTENTION.initial_state(memory))
    second = DOT_ATTENTION(torch.randn(2, 1, 4), memory, first.state)
    assert second.state.num_queries.tolist() == [3, 3]
    torch.testing.assert_close(second.state.last_weights, second.weights[:, 0])
    total = first.weights.sum(1) + second.weights.sum(1)
    torch.testing.assert_close(second.state.coverage, total)
    torch.testing.assert_close(second.state.last_context, second.context[:, 0])


def test_state_is_returned_only_if_passed_in():
    values, queries = torch.randn(1, 3, 4), torch.randn(1, 2, 4)
    with_coverage = AdditiveScore(4, 4, hidden_size=5, features=[CoverageFeature(5)])
    for score in (DotScore(), with_coverage):
        attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
        memory = attention.build_memory(values, all_visible(1, 3))
        assert attention(queries, memory).state is None
        assert attention(queries, memory, attention.initial_state(memory)).state is not None


def test_initial_state_is_random_only_in_training():
    attention = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())
    memory = attention.build_memory(torch.randn(50, 3, 4), all_visible(50, 3))
    samples = attention.train().initial_state(memory).uniform_sample
    assert ((samples >= 0) & (samples < 1)).all()
    assert samples.unique().numel() == 50
    assert (attention.eval().initial_state(memory).uniform_sample == 1).all()


def test_weights_computed_with_state_or_without_fused_kernel():
    memory = DOT_ATTENTION.build_memory(torch.randn(2, 3, 4), padding_mask(torch.tensor([3, 2]), 3))
    queries = torch.randn(2, 2, 4)
    carried = DOT_ATTENTION(
        queries, memory, DOT_ATTENTION.initial_state(memory), need_weights=False
    )
    assert carried.weights is not None
    sparse = SingleHeadAttention(DotScore(), SparsemaxAlignment(), WeightedSumReadout())
    assert sparse(queries, memory, need_weights=False).weights is not None
