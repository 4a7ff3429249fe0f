"""Evidence: what was said of outputs that grow side by side and end one after another."""

import pytest
import torch

from heedful.errors import RunError
from heedful.search import StepOutput
from heedful.search.hypotheses import HypothesisRecorder

SAID = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]).double().log()
LOOKED = torch.tensor([[1.0, 0.0], [0.0, 1.0]])


def test_each_output_is_read_back_from_its_own_row():
    """The first ends at once, so that the second moves up into its row."""
    evidence = HypothesisRecorder(2)
    evidence.record(StepOutput(SAID, None, LOOKED), torch.tensor([1, 2]), torch.tensor([1]))
    last = torch.tensor([], dtype=torch.long)
    evidence.record(StepOutput(SAID[:1], None, LOOKED[:1]), torch.tensor([1]), last)
    first, second = evidence.hypotheses()
    assert (first.tokens, second.tokens) == ([], [2])
    assert first.log_prob == first.score == pytest.approx(SAID[0, 1].item())
    assert second.log_probs.tolist() == pytest.approx([SAID[1, 2].item(), SAID[0, 1].item()])
    assert second.score == pytest.approx(second.log_probs.sum())
    assert (first.eos_weights.tolist(), second.eos_weights.tolist()) == ([1, 0], [1, 0])
    assert second.weights.tolist() == [[0, 1]]


def test_a_model_that_gives_no_numbers_is_named():
    evidence = HypothesisRecorder(2)
    with pytest.raises(RunError) as caught:
        evidence.record(
            StepOutput(SAID * torch.nan, None, LOOKED), torch.tensor([1, 2]), torch.tensor([0, 1])
        )
    assert str(caught.value) == (
        "search: the model's log-probabilities after 0 tokens are not numbers\n"
        "  its weights or its arithmetic have overflowed: use an earlier checkpoint, or float32"
    )
