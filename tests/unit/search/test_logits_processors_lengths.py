"""Lengths: what is neither too short nor too long."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError, RunError
from heedful.search import BeamSearchOptions
from heedful.search.logits_processors import MaxLength, MinLength, lengths_from_ratio
from tests.unit.search.tables import END, Table, search


@given(seed=st.integers(0, 999), least=st.integers(0, 3), most=st.integers(0, 3))
def test_every_output_between_the_lengths_and_no_other_is_found(seed, least, most):
    table = Table(seed, 3)
    rules = (MaxLength(torch.tensor([max(least, most)]), eos=END),)
    rules += (MinLength(torch.tensor([least]), eos=END),)
    found = search(table, width=40, longest=3, options=BeamSearchOptions(processors=rules))[0]
    wanted = table.exhaust(max(least, most), keep=lambda tokens: len(tokens) >= least)
    assert [each.tokens for each in found] == [tokens for _, tokens in wanted]


def test_lengths_follow_from_those_of_sources():
    assert lengths_from_ratio(torch.tensor([1, 4, 10]), 0.5).tolist() == [0, 2, 5]
    assert lengths_from_ratio(torch.tensor([1, 4, 10]), 1.5, extra=2).tolist() == [3, 8, 17]


def test_what_must_be_longer_than_it_may_is_refused():
    rules = (MinLength(torch.tensor([1, 4]), eos=END),)
    with pytest.raises(ConfigError) as caught:
        search(
            Table(0, 3, sentences=2),
            width=2,
            longest=3,
            sentences=2,
            options=BeamSearchOptions(processors=rules),
        )
    assert str(caught.value) == (
        "lengths of sentence 2: its output must have at least 4 tokens and may have 3\n"
        "  lower the least length, or raise the longest"
    )


def test_a_model_that_rules_the_end_out_is_named_and_not_asked_for_ever():
    table = Table(0, 2)
    table.log_probs[..., END] = -torch.inf
    with pytest.raises(RunError) as caught:
        search(table, width=2, longest=2)
    assert str(caught.value) == (
        "search: the model rules out that an output ends after 2 tokens, the most it may have\n"
        "  let outputs be longer, or use another checkpoint"
    )
