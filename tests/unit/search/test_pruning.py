"""Pruning of Wu et al. 2016, section 7, against a beam search written out by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import (
    BeamPruning,
    BeamSearchOptions,
    LengthPenalty,
    Trellis,
    heuristic_stopping,
    optimal_stopping,
)
from heedful.search.logits_processors import MinLength
from tests.unit.search.tables import EOS, TableModel, never_stop, search

PENALTY = LengthPenalty(0.6)
MAX_LENGTH = 4
seeds, beam_sizes = st.integers(0, 9999), st.integers(1, 5)
thresholds = st.sampled_from([0.5, 1.0, 3.0, float("inf")])


def run(model, pruning, beam_size, *, stopping=never_stop, trellis=None, **options):
    options = BeamSearchOptions(stopping=stopping, pruning=pruning, **options)
    return search(
        model,
        beam_size=beam_size,
        max_length=MAX_LENGTH,
        length_penalty=PENALTY,
        options=options,
        trellis=trellis,
        num_sentences=len(model.log_probs),
    )


def ranked(outputs):
    return [(output.tokens, pytest.approx(output.score)) for output in outputs]


def pruned_beam_search(model, pruning, beam_size):
    """Every open hypothesis is continued to the maximum length; scores are pruned at the end."""
    hypotheses, finished = [(0.0, [])], []
    for length in range(MAX_LENGTH + 1):
        local = [
            (log_prob, total, tokens, token)
            for total, tokens in hypotheses
            for token, log_prob in enumerate(
                model.log_probs[0, model.history_ids[tuple(tokens)]].tolist()
            )
            if token == EOS or length < MAX_LENGTH
        ]
        best = max((log_prob for log_prob, *_ in local), default=0.0)
        if length < MAX_LENGTH:  # at the maximum length EOS is the only token
            local = [item for item in local if item[0] >= best - pruning.token_threshold]
        local = [item for item in local if item[0] > -float("inf")]
        local.sort(key=lambda item: -(item[0] + item[1]))
        finished += [
            (PENALTY(log_prob + total, length + 1), tokens)
            for log_prob, total, tokens, token in local[:beam_size]
            if token == EOS
        ]
        hypotheses = [
            (log_prob + total, [*tokens, token])
            for log_prob, total, tokens, token in local
            if token != EOS
        ][:beam_size]
    finished.sort(key=lambda item: -item[0])
    kept = [item for item in finished if item[0] >= finished[0][0] - pruning.score_threshold]
    return [(tokens, pytest.approx(score)) for score, tokens in kept[:beam_size]]


@given(seed=seeds, beam_size=beam_sizes, tokens=thresholds, scores=thresholds)
def test_pruned_search_same_as_the_search_by_hand(seed, beam_size, tokens, scores):
    model, pruning = TableModel(seed, MAX_LENGTH), BeamPruning(tokens, scores)
    outputs = [(item.tokens, item.score) for item in run(model, pruning, beam_size)[0]]
    assert outputs == pruned_beam_search(model, pruning, beam_size)


@given(seed=seeds, beam_size=beam_sizes, tokens=thresholds, scores=thresholds)
def test_optimal_stopping_loses_nothing_by_pruning(seed, beam_size, tokens, scores):
    model, pruning = TableModel(seed, MAX_LENGTH), BeamPruning(tokens, scores)
    stopped = run(model, pruning, beam_size, stopping=optimal_stopping)[0]
    assert ranked(stopped) == ranked(run(model, pruning, beam_size)[0])


@pytest.mark.parametrize("stopping", [heuristic_stopping, optimal_stopping])
def test_score_threshold_ends_the_search_sooner(stopping):
    sizes = []
    for score_threshold in (0.2, 100.0):
        trellises = [Trellis() for _ in range(20)]
        for seed, trellis in enumerate(trellises):
            pruning = BeamPruning(score_threshold=score_threshold)
            run(TableModel(seed, MAX_LENGTH), pruning, 4, stopping=stopping, trellis=trellis)
        sizes.append(sum(trellis.depth for trellis in trellises))
    assert sizes[0] < sizes[1]


@given(seed=seeds)
def test_pruned_search_does_not_depend_on_the_batch(seed):
    pruning = BeamPruning(1.0, 1.0)
    lengths = [3, 0, 1]
    processors = (MinLength(torch.tensor(lengths), eos=EOS),)
    batched = run(TableModel(seed, 4, num_sentences=3), pruning, 3, processors=processors)
    for sentence, outputs in enumerate(batched):
        processors = (MinLength(torch.tensor(lengths[sentence : sentence + 1]), eos=EOS),)
        model = TableModel(seed, 4, num_sentences=3).only(sentence)
        (alone,) = run(model, pruning, 3, processors=processors)
        assert ranked(alone) == ranked(outputs)
        assert all(len(output.tokens) >= lengths[sentence] for output in outputs)
