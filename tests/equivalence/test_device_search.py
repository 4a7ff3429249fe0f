"""What kernels of greedy and beam search choose is what their references choose.

The kernels run on a GPU, or in Triton's interpreter where there is none.
"""

import pytest
import torch

from heedful.acceleration import tuning
from heedful.acceleration.cuda.token_choice import (
    choose_candidates_with_torch,
    choose_tokens_with_torch,
)
from heedful.tokenization.vocabulary import EOS

pytest.importorskip("triton", reason="Triton is not installed")

from heedful.acceleration.triton.search import triton_choose_candidates, triton_choose_tokens

pytestmark = pytest.mark.extras

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks that a small vocabulary fills more than once."""
    monkeypatch.setattr(tuning, "TRITON_VOCABULARY_CHUNKS", (8, 4))


def assert_same(actual, expected):
    for found, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("vocab_size", [5, 19])
@pytest.mark.parametrize("has_finished", [False, True])
def test_tokens_chosen_with_triton_are_those_of_the_reference(vocab_size, has_finished):
    logits = 3 * torch.randn(6, vocab_size, device=DEVICE)
    logits[:3, EOS] = 9.0
    min_lengths = torch.tensor([0, 4, 2, 0, 9, 1], device=DEVICE)
    max_lengths = torch.tensor([9, 9, 9, 2, 9, 3], device=DEVICE)
    finished = torch.tensor([0, 1, 0, 0, 0, 1], device=DEVICE) != 0 if has_finished else None
    arguments = logits, min_lengths, max_lengths, finished, 2
    assert_same(triton_choose_tokens(*arguments), choose_tokens_with_torch(*arguments))


@pytest.mark.parametrize("rows_per_beam", [1, 3])
@pytest.mark.parametrize("vocab_size", [7, 18])
def test_candidates_ranked_with_triton_are_those_of_the_reference(vocab_size, rows_per_beam):
    logits = 3 * torch.randn(3 * rows_per_beam, vocab_size, device=DEVICE)
    logits[1, EOS] = 9.0
    totals = -torch.rand(3, rows_per_beam, device=DEVICE)
    if rows_per_beam > 1:
        totals[1, 2] = -torch.inf
    min_lengths = torch.tensor([0, 2, 0], device=DEVICE)
    for num_tokens in (1, 2):
        arguments = logits, totals, min_lengths, num_tokens, 3
        expected = choose_candidates_with_torch(*arguments)
        assert_same(triton_choose_candidates(*arguments), expected)


def test_beam_without_continuations_has_no_open_hypotheses():
    logits = torch.randn(2, 9, device=DEVICE)
    totals = torch.full((2, 1), -torch.inf, device=DEVICE)
    totals[1] = 0
    min_lengths = torch.zeros(2, dtype=torch.long, device=DEVICE)
    scores, _, _, open_totals, _, rows = triton_choose_candidates(logits, totals, min_lengths, 0, 2)
    assert scores[0, 0].eq(-torch.inf).all()
    assert open_totals[0].eq(-torch.inf).all()
    assert open_totals[1].isfinite().all()
    assert rows.tolist() == [0, 0, 1, 1]


def test_scores_of_logits_that_are_not_numbers_are_not_numbers():
    logits = torch.randn(2, 9, device=DEVICE)
    logits[0, 6] = torch.nan
    lengths = torch.zeros(2, dtype=torch.long, device=DEVICE)
    totals = torch.zeros(2, 1, device=DEVICE)
    scores = triton_choose_candidates(logits, totals, lengths, 0, 2)[0]
    assert scores[0, 0].isnan().any()
    assert scores[0, 1].isfinite().all()
    log_probs = triton_choose_tokens(logits, lengths, lengths + 5, None, 0)[1]
    assert log_probs.isnan().tolist() == [True, False]
