"""Search against what it must equal: greedy, exhaustive, unbatched and forced decoding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import Batch, collate_sources
from heedful.search import (
    BeamSearchOptions,
    LengthPenalty,
    beam_search,
    greedy_search,
    require_phrase,
)
from heedful.search.logits_processors import NoRepeatNGram
from heedful.search.penalties import CoveragePenalty
from heedful.tokenization.vocabulary import BOS, EOS
from tests.catalogue import DIVERSE_SYSTEMS, SYSTEMS, build, each_system, texts
from tests.shape_checking import unchecked
from tests.unit.search import tables
from tests.unit.search.tables import TableModel, contains, search


def accelerated(name):
    """A system of the catalogue, accelerated as predictors do it."""
    return accelerate_for_inference(build(name), "cpu")


@given(seed=st.integers(0, 10_000), max_length=st.integers(1, 4))
def test_beam_as_large_as_output_space_is_exhaustive_search(seed, max_length):
    model = TableModel(seed, max_length)
    beam_size = len(model.letters) ** max_length * 2
    outputs = search(model, beam_size=beam_size, max_length=max_length)[0]
    expected = model.ranked_outputs(max_length)[: len(outputs)]
    assert [output.tokens for output in outputs] == [tokens for _, tokens in expected]
    for output, (log_prob, _) in zip(outputs, expected, strict=True):
        assert output.log_prob == pytest.approx(log_prob)


@given(seed=st.integers(0, 10_000), beam_size=st.integers(1, 6))
def test_beam_outputs_are_distinct_ranked_and_correctly_scored(seed, beam_size):
    model = TableModel(seed, 4)
    log_probs = {tuple(tokens): log_prob for log_prob, tokens in model.ranked_outputs(4)}
    penalty = LengthPenalty(0.6)
    outputs = search(model, beam_size=beam_size, max_length=4, length_penalty=penalty)[0]
    assert len({tuple(output.tokens) for output in outputs}) == len(outputs) <= beam_size
    scores = [output.score for output in outputs]
    assert scores == sorted(scores, reverse=True)
    for output in outputs:
        log_prob = log_probs[tuple(output.tokens)]
        assert output.log_prob == pytest.approx(log_prob)
        length = len(output.tokens) + 1
        assert output.score == pytest.approx(log_prob / ((5 + length) / 6) ** 0.6)


@given(seed=st.integers(0, 10_000))
def test_beam_size_1_is_greedy_search_on_tables(seed):
    model = TableModel(seed, 4, num_sentences=3)
    shared = {"bos": tables.BOS, "eos": tables.EOS, "max_lengths": torch.tensor([4, 2, 0])}
    greedy = greedy_search(model, model.initial_state(3), **shared)
    beam = beam_search(model, model.initial_state(3), beam_size=1, **shared)
    assert [output.tokens for output in greedy] == [outputs[0].tokens for outputs in beam]
    for output, (other,) in zip(greedy, beam, strict=True):
        assert output.log_prob == pytest.approx(other.log_prob)


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take hundreds of steps, and `test_steps.py` checks the shapes of each."""
    with unchecked():
        yield


def run_search(model, sources, beam_size, options=None):
    return model.search(
        sources,
        beam_size=beam_size,
        max_lengths=torch.full((len(sources.lengths),), 8),
        length_penalty=LengthPenalty(0.6),
        options=options,
    )


@each_system
def test_beam_size_1_is_greedy_search_for_every_system(name):
    model, sources = accelerated(name), collate_sources(texts())
    max_lengths = torch.full((len(sources.lengths),), 8)
    state = model.initial_state(sources)
    beam = beam_search(model, state, bos=BOS, eos=EOS, beam_size=1, max_lengths=max_lengths)
    for (greedy,), (other,) in zip(run_search(model, sources, 1), beam, strict=True):
        assert greedy.tokens == other.tokens
        torch.testing.assert_close(torch.tensor(greedy.weights), torch.tensor(other.weights))


@each_system
@pytest.mark.wide
def test_batched_search_same_as_one_sentence_at_a_time(name):
    """The systems take turns with greedy search and a beam."""
    beam_size = 1 + 2 * (list(SYSTEMS).index(name) % 2)
    model, sequences = accelerated(name), texts(4)
    batched = run_search(model, collate_sources(sequences), beam_size)
    for sequence, expected in zip(sequences, batched, strict=True):
        alone = run_search(model, collate_sources([sequence]), beam_size)[0]
        assert [output.tokens for output in alone] == [output.tokens for output in expected]
        for output, other in zip(alone, expected, strict=True):
            assert output.log_prob == pytest.approx(other.log_prob)


@each_system
def test_weights_under_a_beam_match_forced_decoding_and_teacher_forcing(name):
    model, sequences = accelerated(name), texts(4)
    outputs_of_sentences = run_search(model, collate_sources(sequences), 4)
    outputs = [outputs[rank] for rank in (0, -1) for outputs in outputs_of_sentences]
    scored = model.score(collate_sources(sequences * 2), [output.tokens for output in outputs])
    for sequence, output, forced in zip(sequences * 2, outputs, scored, strict=True):
        expected, log_probs = teacher_forced(model, sequence, output.tokens)
        weights = np.concatenate([output.weights, output.eos_weights[None]])
        assert weights[:, : expected.shape[1]] == pytest.approx(expected, abs=1e-5)
        assert output.log_probs == pytest.approx(log_probs)
        assert output.weights == pytest.approx(forced.weights, abs=1e-6)
        assert output.eos_weights == pytest.approx(forced.eos_weights, abs=1e-6)
        assert output.log_probs == pytest.approx(forced.log_probs)


@torch.no_grad()
def teacher_forced(model, sequence, tokens):
    """Weights and log-probabilities of an output that is decoded in one call."""
    inputs, targets = torch.tensor([[BOS, *tokens]]), torch.tensor([[*tokens, EOS]])
    result = model(Batch(collate_sources([sequence]), inputs, targets), need_weights=True)
    log_probs = result.log_probs[0].gather(1, targets[0, :, None])[:, 0]
    return result.weights[0].numpy(), log_probs.numpy()


@pytest.mark.parametrize("name", DIVERSE_SYSTEMS)
def test_forced_decoding_reproduces_every_output_of_a_beam(name):
    model, sources = accelerated(name), collate_sources(texts(4))
    options = BeamSearchOptions(coverage_penalty=CoveragePenalty(0.3, "repeated"))
    outputs_of_sentences = run_search(model, sources, 4, options)
    for rank in range(4):
        outputs = [outputs[rank] for outputs in outputs_of_sentences]
        scored = model.score(
            sources,
            [output.tokens for output in outputs],
            coverage_penalty=options.coverage_penalty,
            length_penalty=LengthPenalty(0.6),
        )
        for forced, output in zip(scored, outputs, strict=True):
            assert forced.log_prob == pytest.approx(output.log_prob)
            assert forced.score == pytest.approx(output.score)
            assert forced.log_probs == pytest.approx(output.log_probs)
            assert forced.weights == pytest.approx(output.weights, abs=1e-5)
            assert forced.eos_weights == pytest.approx(output.eos_weights, abs=1e-5)


@pytest.mark.parametrize("name", DIVERSE_SYSTEMS)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_constrained_search_does_not_depend_on_the_batch(name, beam_size):
    model, sequences = accelerated(name), texts(4)
    constraints = [
        [require_phrase([5, 6])],
        [],
        [require_phrase([4], [7, 7])],
        [require_phrase([8]), require_phrase([9, 4])],
    ]

    def search_rows(rows):
        options = BeamSearchOptions(
            processors=(NoRepeatNGram(2),), constraints=[constraints[row] for row in rows]
        )
        sources = collate_sources([sequences[row] for row in rows])
        return run_search(model, sources, beam_size, options)

    order = [3, 1, 0, 2]
    for row, expected in zip(order, search_rows(order), strict=True):
        (alone,) = search_rows([row])
        assert [output.tokens for output in alone] == [output.tokens for output in expected]
        for constraint in constraints[row]:
            for output in alone:
                assert any(contains(output.tokens, phrase) for phrase in constraint.phrases)
