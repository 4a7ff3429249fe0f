import pytest
import torch
from torch.nn.functional import cross_entropy

from heedful.text.vocabulary import PAD
from heedful.training.objectives import negative_log_likelihood, num_correct


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_sum_is_torchs_smoothed_cross_entropy_over_real_targets(smoothing):
    logits = torch.randn(3, 4, 7)
    targets = torch.tensor([[5, 3, PAD, PAD], [4, 4, 4, 3], [3, PAD, PAD, PAD]])
    ours = negative_log_likelihood(logits.log_softmax(-1), targets, smoothing=smoothing)
    theirs = cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )
    torch.testing.assert_close(ours, theirs)


def test_right_guesses_are_counted_where_targets_are_real():
    log_probs = torch.tensor([[[0.0, -1], [0, -1]]]).log_softmax(-1)
    assert num_correct(log_probs, torch.tensor([[1, 1]])) == 0
    assert num_correct(-log_probs, torch.tensor([[1, PAD]])) == 1
