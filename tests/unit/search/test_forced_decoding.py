"""Forced decoding: what a model thinks of outputs that are given."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import BeamSearchOptions, LengthPenalty, score_targets
from heedful.search.penalties import GNMTCoveragePenalty
from tests.unit.search.tables import BEGIN, END, Table, search

targets = st.lists(st.lists(st.integers(2, 3), max_size=4), min_size=1, max_size=4)


@given(seed=st.integers(0, 9999), targets=targets)
def test_targets_are_worth_what_the_table_says(seed, targets):
    table = Table(seed, 4, sentences=len(targets))
    found = score_targets(table, table.start(len(targets)), targets, bos=BEGIN, eos=END)
    for sentence, (each, tokens) in enumerate(zip(found, targets, strict=True)):
        assert each.tokens == tokens
        assert each.log_probs.tolist() == pytest.approx(table.of(tokens, sentence))
        assert each.log_prob == each.score == pytest.approx(sum(table.of(tokens, sentence)))
        assert each.weights.shape == (len(tokens), 3)


@given(seed=st.integers(0, 9999), width=st.integers(1, 4))
def test_a_search_says_the_same_of_what_it_found(seed, width):
    table, penalty, coverage_penalty = Table(seed, 4), LengthPenalty(0.6), GNMTCoveragePenalty(0.3)
    lengths = torch.tensor([2])
    found = search(
        table,
        width=width,
        longest=4,
        length_penalty=penalty,
        options=BeamSearchOptions(coverage_penalty=coverage_penalty),
        source_lengths=lengths,
    )[0]
    for each in found:
        (forced,) = score_targets(
            table,
            table.start(),
            [each.tokens],
            bos=BEGIN,
            eos=END,
            length_penalty=penalty,
            coverage_penalty=coverage_penalty,
            source_lengths=lengths,
        )
        assert forced.score == pytest.approx(each.score)
        assert forced.log_probs.tolist() == pytest.approx(each.log_probs.tolist())
        assert (forced.weights == each.weights).all()
        assert (forced.eos_weights == each.eos_weights).all()
