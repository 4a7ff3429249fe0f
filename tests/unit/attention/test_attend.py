import torch
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention import Attention, DotScore, Expectation, Memory, Softmax, padding
from heedful.nested import select

PLAIN = Attention(DotScore(), Softmax(), Expectation())


def test_dot_softmax_expectation_is_what_torch_computes():
    queries, values = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    mask = padding(torch.tensor([5, 2]), 5)
    ours = PLAIN(queries, PLAIN.remember(values, mask)).context
    theirs = scaled_dot_product_attention(queries, values, values, attn_mask=mask, scale=1.0)
    torch.testing.assert_close(ours, theirs)


def test_the_context_is_the_mean_of_the_values_under_the_weights():
    memory = PLAIN.remember(torch.randn(1, 3, 4), torch.ones(1, 1, 3, dtype=torch.bool))
    context, weights, *_ = PLAIN(torch.randn(1, 1, 4), memory)
    by_hand = sum(weights[0, 0, place] * memory.values[0, place] for place in range(3))
    torch.testing.assert_close(context[0, 0], by_hand)


def test_keys_are_prepared_once_and_not_per_question():
    calls = []

    class Counting(DotScore):
        def prepare(self, keys):
            calls.append(keys)
            return super().prepare(keys)

    attention = Attention(Counting(), Softmax(), Expectation())
    memory = attention.remember(torch.randn(1, 3, 4), torch.ones(1, 1, 3, dtype=torch.bool))
    for _ in range(5):
        attention(torch.randn(1, 1, 4), memory)
    assert len(calls) == 1


def test_rows_of_a_memory_can_be_selected_and_repeated():
    memory = PLAIN.remember(torch.randn(3, 2, 4), padding(torch.tensor([1, 2, 2]), 2))
    rows = torch.tensor([2, 0, 0])
    chosen = select(memory, rows)
    assert isinstance(chosen, Memory)
    for part, whole in zip(chosen, memory, strict=True):
        torch.testing.assert_close(part, whole[rows])
