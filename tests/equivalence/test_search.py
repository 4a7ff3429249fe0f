"""Search against what it must equal: greedy, exhaustive, one by one, forced decoding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batching import Batch, collate_sources
from heedful.search import (
    BeamSearchOptions,
    LengthPenalty,
    beam_search,
    greedy_search,
    require_phrase,
)
from heedful.search.logits_processors import NoRepeatNGram
from heedful.search.penalties import RepeatedCoveragePenalty
from heedful.tokenization.vocabulary import BOS, EOS
from tests.catalogue import SYSTEMS, build, texts
from tests.shape_checking import unchecked
from tests.unit.search.tables import BEGIN, END, Table, contains, search


def table_search(model, *, width, longest, alpha=0.0):
    return search(model, width=width, longest=longest, length_penalty=LengthPenalty(alpha))


@given(seed=st.integers(0, 10_000), longest=st.integers(1, 4))
def test_a_beam_as_wide_as_the_space_is_exhaustive_search(seed, longest):
    table = Table(seed, longest)
    width = len(table.letters) ** longest * 2
    found = table_search(table, width=width, longest=longest)[0]
    best = table.exhaust(longest)[: len(found)]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in best]
    for hypothesis, (total, _) in zip(found, best, strict=True):
        assert hypothesis.log_prob == pytest.approx(total)


@given(seed=st.integers(0, 10_000), width=st.integers(1, 6))
def test_what_a_beam_finds_has_the_log_probability_it_says_and_is_ranked(seed, width):
    table = Table(seed, 4)
    known = {tuple(tokens): total for total, tokens in table.exhaust(4)}
    found = table_search(table, width=width, longest=4, alpha=0.6)[0]
    assert len({tuple(hypothesis.tokens) for hypothesis in found}) == len(found) <= width
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in found:
        total = known[tuple(hypothesis.tokens)]
        assert hypothesis.log_prob == pytest.approx(total)
        length = len(hypothesis.tokens) + 1
        assert hypothesis.score == pytest.approx(total / ((5 + length) / 6) ** 0.6)


@given(seed=st.integers(0, 10_000))
def test_beam_1_is_greedy_on_tables(seed):
    table = Table(seed, 4, sentences=3)
    limits = torch.tensor([4, 2, 0])
    greedy = greedy_search(table, table.start(3), bos=BEGIN, eos=END, max_lengths=limits)
    beam = beam_search(table, table.start(3), bos=BEGIN, eos=END, beam_size=1, max_lengths=limits)
    assert [each.tokens for each in greedy] == [each[0].tokens for each in beam]
    for one, (other,) in zip(greedy, beam, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob)


each_system = pytest.mark.parametrize("name", SYSTEMS)


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take hundreds of steps, and `test_steps.py` has checked the shapes of each."""
    with unchecked():
        yield


def run(model, sources, width):
    limits = torch.full((len(sources.lengths),), 8)
    return model.search(
        sources, beam_size=width, max_lengths=limits, length_penalty=LengthPenalty(0.6)
    )


@each_system
def test_beam_1_is_greedy_for_every_system(name):
    model, sources = build(name), collate_sources(texts())
    limits = torch.full((len(sources.lengths),), 8)
    state = model.initial_state(sources)
    beam = beam_search(model, state, bos=BOS, eos=EOS, beam_size=1, max_lengths=limits)
    for (greedy,), (other,) in zip(run(model, sources, 1), beam, strict=True):
        assert greedy.tokens == other.tokens
        torch.testing.assert_close(torch.tensor(greedy.weights), torch.tensor(other.weights))


@each_system
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.wide
def test_a_sentence_gives_the_same_alone_and_in_company(name, width):
    model, sequences = build(name), texts(4)
    together = run(model, collate_sources(sequences), width)
    for sequence, company in zip(sequences, together, strict=True):
        alone = run(model, collate_sources([sequence]), width)[0]
        assert [each.tokens for each in alone] == [each.tokens for each in company]
        for one, other in zip(alone, company, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob)


@each_system
def test_attention_under_a_beam_is_that_of_forced_decoding(name):
    """What a hypothesis says it looked at is what the model looks at when told that output."""
    model, sequences = build(name), texts(4)
    found = run(model, collate_sources(sequences), 4)
    outputs = [row[rank] for rank in (0, -1) for row in found]
    told = model.score(collate_sources(sequences * 2), [each.tokens for each in outputs])
    for sequence, hypothesis, forced in zip(sequences * 2, outputs, told, strict=True):
        whole, log_probs = read_whole(model, sequence, hypothesis.tokens)
        looked = np.concatenate([hypothesis.weights, hypothesis.eos_weights[None]])
        assert looked[:, : whole.shape[1]] == pytest.approx(whole, abs=1e-5)
        assert hypothesis.log_probs == pytest.approx(log_probs)
        assert hypothesis.weights == pytest.approx(forced.weights, abs=1e-6)
        assert hypothesis.eos_weights == pytest.approx(forced.eos_weights, abs=1e-6)
        assert hypothesis.log_probs == pytest.approx(forced.log_probs)


@torch.no_grad()
def read_whole(model, sequence, tokens):
    """Where a model looks when it reads an output at once, and how likely each token is."""
    inputs, targets = torch.tensor([[BOS, *tokens]]), torch.tensor([[*tokens, EOS]])
    said = model(Batch(collate_sources([sequence]), inputs, targets))
    return said.weights[0].numpy(), said.log_probs[0].gather(1, targets[0, :, None])[:, 0].numpy()


SOME = [  # a few that look, and keep, in unlike ways
    "gru, attend-then-step",
    "alignment argmax",
    "alignment monotonic",
    "alignment chunkwise",
    "feature coverage",
    "marginal over softmax",
    "heads with coverage",
    "sutskever",
    "lstmn in both",
    "continuation, gru",
    "decoder only, span both",
    "transformer",
    "transformer, alignment monotonic",
    "convolutional",
    "dilated",
]


@pytest.mark.parametrize("name", SOME)
def test_given_outputs_are_worth_what_a_search_says_of_them(name):
    """All that a hypothesis carries is what the model says when it is told that output."""
    model, sources = build(name), collate_sources(texts(4))
    limits = torch.full((len(sources.lengths),), 8)
    options = {"length_penalty": LengthPenalty(0.6)}
    how = BeamSearchOptions(coverage_penalty=RepeatedCoveragePenalty(0.3))
    found = model.search(sources, beam_size=4, max_lengths=limits, options=how, **options)
    for rank in range(4):
        outputs = [row[rank].tokens for row in found]
        forced = model.score(sources, outputs, coverage_penalty=how.coverage_penalty, **options)
        for told, row in zip(forced, found, strict=True):
            assert told.log_prob == pytest.approx(row[rank].log_prob)
            assert told.score == pytest.approx(row[rank].score)
            assert told.log_probs == pytest.approx(row[rank].log_probs)
            assert told.weights == pytest.approx(row[rank].weights, abs=1e-5)
            assert told.eos_weights == pytest.approx(row[rank].eos_weights, abs=1e-5)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("width", [1, 3])
def test_rules_and_constraints_hold_in_any_company(name, width):
    model, sequences = build(name), texts(4)
    constraints = [
        [require_phrase([5, 6])],
        [],
        [require_phrase([4], [7, 7])],
        [require_phrase([8]), require_phrase([9, 4])],
    ]

    def found_for(rows):
        sources = collate_sources([sequences[row] for row in rows])
        how = BeamSearchOptions(
            processors=(NoRepeatNGram(2),), constraints=[constraints[row] for row in rows]
        )
        limits = torch.full((len(rows),), 8)
        penalty = LengthPenalty(0.6)
        return model.search(
            sources, beam_size=width, max_lengths=limits, length_penalty=penalty, options=how
        )

    together = found_for([3, 1, 0, 2])
    for row, company in zip([3, 1, 0, 2], together, strict=True):
        (alone,) = found_for([row])
        assert [each.tokens for each in alone] == [each.tokens for each in company]
        for must in constraints[row]:
            for each in alone:
                assert any(contains(each.tokens, phrase) for phrase in must.phrases)
