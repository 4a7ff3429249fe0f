"""Search against what it must equal: greedy, exhaustive, one by one, forced decoding."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.collate import Batch, collate_sources
from heedful.search import LengthPenalty, Step, beam_search, greedy_search
from heedful.text.vocabulary import BOS, EOS
from tests.catalogue import SYSTEMS, build, texts
from tests.shape_checking import unchecked

BEGIN, END, LETTERS = 0, 1, (2, 3)
VOCABULARY = 4


class Table:
    """A model that is a table: log-probabilities for every history of up to `depth` tokens."""

    def __init__(self, seed, depth):
        generator = torch.Generator().manual_seed(seed)
        histories = [
            history for length in range(depth + 1) for history in product(LETTERS, repeat=length)
        ]
        logits = 3 * torch.randn(len(histories), VOCABULARY, generator=generator).double()
        logits[:, BEGIN] = -torch.inf
        self.table = dict(zip(histories, logits.log_softmax(-1), strict=True))
        self.depth = depth

    def start(self, sentences):
        return torch.full((sentences, self.depth + 1), BEGIN)

    def step(self, tokens, state):
        """The state is the history itself, newest token last."""
        state = torch.cat([state[:, 1:], tokens[:, None]], dim=1)
        histories = [tuple(t for t in row if t != BEGIN) for row in state.tolist()]
        impossible = torch.zeros(VOCABULARY).double()  # rows the beam has no hypothesis for
        log_probs = torch.stack([self.table.get(history, impossible) for history in histories])
        return Step(log_probs, state, state.double())

    def exhaust(self, longest):
        """Every complete output of up to `longest` tokens with its log-probability, best first."""
        outputs = []
        for length in range(longest + 1):
            for history in product(LETTERS, repeat=length):
                parts = [self.table[history[:t]][history[t]] for t in range(length)]
                total = sum(parts) + self.table[history][END]
                outputs.append((float(total), list(history)))
        return sorted(outputs, reverse=True)


def search(model, state, *, width, longest, alpha=0.0):
    limits = torch.full((len(state),), longest)
    options = {"begin": BEGIN, "end": END, "max_lengths": limits, "penalty": LengthPenalty(alpha)}
    return beam_search(model, state, width=width, **options)


@given(seed=st.integers(0, 10_000), longest=st.integers(1, 4))
def test_a_beam_as_wide_as_the_space_is_exhaustive_search(seed, longest):
    table = Table(seed, longest)
    width = len(LETTERS) ** longest * 2
    found = search(table, table.start(1), width=width, longest=longest)[0]
    best = table.exhaust(longest)[: len(found)]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in best]
    for hypothesis, (total, _) in zip(found, best, strict=True):
        assert hypothesis.log_prob == pytest.approx(total)


@given(seed=st.integers(0, 10_000), width=st.integers(1, 6))
def test_what_a_beam_finds_has_the_log_probability_it_says_and_is_ranked(seed, width):
    table = Table(seed, 4)
    known = {tuple(tokens): total for total, tokens in table.exhaust(4)}
    found = search(table, table.start(1), width=width, longest=4, alpha=0.6)[0]
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
    table = Table(seed, 4)
    limits = torch.tensor([4, 2, 0])
    greedy = greedy_search(table, table.start(3), begin=BEGIN, end=END, max_lengths=limits)
    beam = beam_search(table, table.start(3), begin=BEGIN, end=END, width=1, max_lengths=limits)
    assert [each.tokens for each in greedy] == [each[0].tokens for each in beam]
    for one, (other,) in zip(greedy, beam, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob)


@given(seed=st.integers(0, 10_000))
def test_attention_follows_its_hypothesis(seed):
    """The table looks at its own history, so each row of weights tells what came before."""
    table = Table(seed, 4)
    for hypothesis in search(table, table.start(1), width=4, longest=4)[0]:
        for time, row in enumerate(hypothesis.weights.tolist()):
            assert [t for t in row if t != BEGIN] == hypothesis.tokens[:time]


each_system = pytest.mark.parametrize("name", SYSTEMS)


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take hundreds of steps, and `test_steps.py` has checked the shapes of each."""
    with unchecked():
        yield


def run(model, sources, width):
    limits = torch.full((len(sources.lengths),), 8)
    return model.search(sources, width=width, max_lengths=limits, penalty=LengthPenalty(0.6))


@each_system
def test_beam_1_is_greedy_for_every_system(name):
    model, sources = build(name), collate_sources(texts())
    limits = torch.full((len(sources.lengths),), 8)
    state = model.start(sources)
    beam = beam_search(model, state, begin=BOS, end=EOS, width=1, max_lengths=limits)
    for (greedy,), (other,) in zip(run(model, sources, 1), beam, strict=True):
        assert greedy.tokens == other.tokens
        torch.testing.assert_close(torch.tensor(greedy.weights), torch.tensor(other.weights))


@each_system
@pytest.mark.parametrize("width", [1, 3])
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
    for sequence, found in zip(sequences, run(model, collate_sources(sequences), 4), strict=True):
        sources = collate_sources([sequence])
        for hypothesis in (found[0], found[-1]):
            inputs = torch.tensor([[BOS, *hypothesis.tokens]])
            targets = torch.tensor([[*hypothesis.tokens, EOS]])
            forced = model(Batch(sources, inputs, targets))
            total = forced.log_probs[0].gather(1, targets[0, :, None]).sum()
            assert hypothesis.log_prob == pytest.approx(total.item())
            seen = torch.tensor(hypothesis.weights)[:, : sources.tokens.size(1)]
            looked = forced.weights[0, : len(hypothesis.tokens)].float().detach()
            torch.testing.assert_close(seen, looked, atol=1e-5, rtol=1e-4)
