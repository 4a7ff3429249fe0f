"""Hypotheses with their log-probabilities and weights, and the search tree."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RunError
from heedful.search import LengthPenalty, StepOutput, Trellis
from heedful.search.hypotheses import HypothesisRecorder
from tests.unit.search.tables import EOS, TableModel, search

LOG_PROBS = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]).double().log()
WEIGHTS = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
search_cases = given(seed=st.integers(0, 9999), beam_size=st.integers(1, 5))


def run_search(seed, beam_size):
    model, trellis = TableModel(seed, 4, num_sentences=2), Trellis()
    outputs = search(
        model,
        beam_size=beam_size,
        max_length=[4, 2],
        num_sentences=2,
        length_penalty=LengthPenalty(0.6),
        trellis=trellis,
    )
    return model, outputs, trellis


@search_cases
def test_hypotheses_carry_log_probs_and_weights_of_tokens(seed, beam_size):
    model, outputs_of_sentences, _ = run_search(seed, beam_size)
    for sentence, outputs in enumerate(outputs_of_sentences):
        for output in outputs:
            expected = model.token_log_probs(output.tokens, sentence)
            assert output.log_probs.tolist() == pytest.approx(expected)
            assert output.log_prob == pytest.approx(output.log_probs.sum())
            weights = torch.from_numpy(output.weights).double()
            expected = model.output_weights(output.tokens)
            torch.testing.assert_close(weights, expected[:-1], atol=1e-6, rtol=0)
            eos_weights = torch.from_numpy(output.eos_weights).double()
            torch.testing.assert_close(eos_weights, expected[-1], atol=1e-6, rtol=0)


def path_tokens(tree, node):
    return [] if node.parent is None else [*path_tokens(tree, tree[node.parent]), node.token]


@search_cases
def test_tree_contains_every_hypothesis_and_the_partial_sums(seed, beam_size):
    model, outputs_of_sentences, trellis = run_search(seed, beam_size)
    for sentence, outputs in enumerate(outputs_of_sentences):
        tree = trellis.tree(sentence, eos=EOS)
        root, *others = tree
        assert root.parent is None
        for index, node in enumerate(others, start=1):
            assert node.parent < index
            *prefix, token = path_tokens(tree, node)
            log_probs = (
                model.token_log_probs(prefix, sentence)
                if token == EOS
                else model.token_log_probs([*prefix, token], sentence)[:-1]
            )
            assert node.log_prob == pytest.approx(log_probs[-1])
            total = tree[node.parent].cumulative_log_prob + node.log_prob
            assert node.cumulative_log_prob == pytest.approx(total)
        parents = {node.parent for node in tree}
        for index, node in enumerate(tree):
            assert (node.status == "continued") == (index in parents)
            assert (node.status == "finished") == (node.token == EOS)
        depths = [len(path_tokens(tree, node)) for node in tree if node.token != EOS]
        assert max(depths.count(depth) for depth in depths) <= beam_size
        finished = [path_tokens(tree, node)[:-1] for node in tree if node.status == "finished"]
        assert all(output.tokens in finished for output in outputs)


def test_recorder_follows_outputs_across_rows():
    """The first output ends at once, so that the second moves into its row."""
    recorder = HypothesisRecorder(2)
    recorder.record(StepOutput(LOG_PROBS, None, WEIGHTS), torch.tensor([1, 2]), torch.tensor([1]))
    nothing = torch.tensor([], dtype=torch.long)
    recorder.record(StepOutput(LOG_PROBS[:1], None, WEIGHTS[:1]), torch.tensor([1]), nothing)
    first, second = recorder.hypotheses()
    assert (first.tokens, second.tokens) == ([], [2])
    assert first.log_prob == first.score == pytest.approx(LOG_PROBS[0, 1].item())
    expected = [LOG_PROBS[1, 2].item(), LOG_PROBS[0, 1].item()]
    assert second.log_probs.tolist() == pytest.approx(expected)
    assert second.score == pytest.approx(second.log_probs.sum())
    assert (first.eos_weights.tolist(), second.eos_weights.tolist()) == ([1, 0], [1, 0])
    assert second.weights.tolist() == [[0, 1]]


def test_recorder_reports_nan_log_probs():
    recorder, step = HypothesisRecorder(2), StepOutput(LOG_PROBS * torch.nan, None, WEIGHTS)
    with pytest.raises(RunError) as caught:
        recorder.record(step, torch.tensor([1, 2]), torch.tensor([0, 1]))
    assert str(caught.value) == (
        "search: the model's log-probabilities are NaN after 0 tokens\n"
        "  the parameters or activations have overflowed: use an earlier checkpoint, or float32"
    )
