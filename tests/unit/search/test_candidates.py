"""Candidates: the best by chunks are the best of all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RunError
from heedful.search.candidates import find_candidates
from tests.unit.search.tables import Table, search


@given(
    seed=st.integers(0, 9999),
    size=st.sampled_from([3, 127, 640, 1280, 1281, 1300, 2559]),
    held=st.integers(1, 3),
    count=st.integers(1, 4),
    forbidden=st.sampled_from([0.0, 0.5, 0.999]),
)
def test_the_best_are_those_of_sorting_everything(seed, size, held, count, forbidden):
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(2 * held, size, generator=generator).double()
    log_probs[torch.rand(log_probs.shape, generator=generator) < forbidden] = -torch.inf
    cumulative_log_probs = torch.randn(2, held, generator=generator).double()
    arguments = (log_probs, log_probs, cumulative_log_probs.numpy(), count)
    forms = [find_candidates.reference, *(kernel.run for kernel in kernels_for(*arguments))]
    for form in forms:
        found = form(*arguments)
        last = log_probs.numpy()[found.rows, found.tokens]
        assert found.log_probs.tolist() == last.tolist()
        totals = last + cumulative_log_probs.flatten().numpy()[found.rows]
        assert found.cumulative_log_probs.tolist() == totals.tolist()
        for beam in range(2):
            beam_rows = slice(beam * held, (beam + 1) * held)
            extended = log_probs[beam_rows] + cumulative_log_probs[beam, :, None]
            expected = extended.flatten().sort(descending=True).values[:count]
            assert found.cumulative_log_probs[beam].tolist() == expected.tolist()
            num_real = int((expected > -torch.inf).sum())
            pairs = zip(found.rows[beam].tolist(), found.tokens[beam].tolist(), strict=True)
            assert len(set(pairs)) >= num_real


def kernels_for(*arguments):
    return [kernel for kernel in find_candidates.kernels if kernel.supports(*arguments)]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_less_precise_models_are_ranked_in_single_precision(kind):
    said = torch.randn(4, 1300).to(kind)
    cumulative_log_probs = np.array([[-1.0, -1.001], [-2.0, -2.001]])
    found, wanted = (
        find_candidates(said, said, cumulative_log_probs, 3),
        find_candidates(said.float(), said.float(), cumulative_log_probs, 3),
    )
    assert found.cumulative_log_probs.tolist() == wanted.cumulative_log_probs.tolist()
    assert found.tokens.tolist() == wanted.tokens.tolist()


def test_what_the_model_said_is_kept_beside_what_rules_left():
    said = torch.tensor([[-1.0, -2.0, -3.0]])
    allowed = torch.tensor([[-torch.inf, -2.5, -3.0]])
    found = find_candidates(allowed, said, np.array([[-10.0]]), 2)
    assert found.cumulative_log_probs.tolist() == [[-12.5, -13.0]]
    assert found.log_probs.tolist() == [[-2.0, -3.0]]
    assert found.tokens.tolist() == [[1, 2]]


def test_a_model_that_gives_no_numbers_is_named():
    table = Table(0, 3)
    table.log_probs[:, 1:] = torch.nan
    with pytest.raises(RunError) as caught:
        search(table, width=2, longest=3)
    assert str(caught.value) == (
        "search: the model's log-probabilities after 1 tokens are not numbers\n"
        "  its weights or its arithmetic have overflowed: use an earlier checkpoint, or float32"
    )
