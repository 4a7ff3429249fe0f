"""Forced decoding: scores of given outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import BeamSearchOptions, LengthPenalty, score_targets
from heedful.search.penalties import CoveragePenalty
from tests.unit.search.tables import BOS, EOS, TableModel, search

some_targets = st.lists(st.lists(st.integers(2, 3), max_size=4), min_size=1, max_size=4)


@given(seed=st.integers(0, 9999), targets=some_targets)
def test_scores_of_targets_equal_the_table(seed, targets):
    model = TableModel(seed, 4, num_sentences=len(targets))
    state = model.initial_state(len(targets))
    scored = score_targets(model, state, targets, bos=BOS, eos=EOS)
    for sentence, (output, tokens) in enumerate(zip(scored, targets, strict=True)):
        expected = model.token_log_probs(tokens, sentence)
        assert output.tokens == tokens
        assert output.log_probs.tolist() == pytest.approx(expected)
        assert output.log_prob == output.score == pytest.approx(sum(expected))
        assert output.weights.shape == (len(tokens), 3)


@given(seed=st.integers(0, 9999), beam_size=st.integers(1, 4))
def test_forced_decoding_reproduces_beam_search(seed, beam_size):
    model, lengths = TableModel(seed, 4), torch.tensor([2])
    length_penalty, coverage_penalty = LengthPenalty(0.6), CoveragePenalty(0.3, "gnmt")
    outputs = search(
        model,
        beam_size=beam_size,
        max_length=4,
        length_penalty=length_penalty,
        options=BeamSearchOptions(coverage_penalty=coverage_penalty),
        source_lengths=lengths,
    )[0]
    for output in outputs:
        (forced,) = score_targets(
            model,
            model.initial_state(),
            [output.tokens],
            bos=BOS,
            eos=EOS,
            length_penalty=length_penalty,
            coverage_penalty=coverage_penalty,
            source_lengths=lengths,
        )
        assert forced.score == pytest.approx(output.score)
        assert forced.log_probs.tolist() == pytest.approx(output.log_probs.tolist())
        assert (forced.weights == output.weights).all()
        assert (forced.eos_weights == output.eos_weights).all()


def test_scoring_no_targets_returns_nothing():
    model = TableModel(0, 1)
    assert score_targets(model, model.initial_state(0), [], bos=BOS, eos=EOS) == []
