"""Ensembles: one member is itself, and unlike ones speak with one voice."""

from functools import cache

import pytest
import torch

from heedful.data.text.batching import collate_sources
from heedful.errors import ConfigError
from heedful.models.base import DecodableModel
from heedful.models.ensembles import (
    Ensemble,
    ShallowFusion,
    average_log_probs,
    average_weights,
    ensemble_members,
    replace_members,
)
from heedful.models.language_model import LanguageModelConfig
from heedful.search import BeamGroups, BeamSearchOptions, LengthPenalty, StepOutput, require_phrase
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import BOS, EOS
from tests.catalogue import build, texts
from tests.shape_checking import unchecked
from tests.unit.search.tables import contains

AVERAGES = ["log-probabilities", "probabilities"]
UNLIKE = ["gru, attend-then-step", "transformer", "convolutional", "sutskever"]
each_average = pytest.mark.parametrize("average", AVERAGES)


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take many steps, and `test_steps.py` has checked the shapes of each."""
    with unchecked():
        yield


class Memoryless(DecodableModel):
    """A member whose next token depends on the last one alone; it looks where it is told to."""

    def __init__(self, chances, weights=(0.0,)):
        self.log_probs = torch.tensor(chances).double().log()
        self.weights = torch.tensor([weights]).double()

    def initial_state(self, sources):
        return sources.lengths

    def step(self, tokens, state):
        return StepOutput(self.log_probs[tokens], state, self.weights.expand(len(tokens), -1))


def chances(seed, size=6):
    """A table of chances, by the last token and the next; BOS is never said."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(size, size, generator=generator) ** 3
    drawn[:, [0, 1, BOS]] = 0
    return (drawn / drawn.sum(dim=-1, keepdim=True)).tolist()


@cache
def unlike():
    return tuple(build(name) for name in UNLIKE)


def one_source():
    return collate_sources([[5]])


def exhaust(tables, average, longest):
    """Every output with its worth, by the definition of the average."""
    actual = []
    letters = [4, 5]

    def append(tokens, total):
        last = tokens[-1] if tokens else BOS
        each = torch.tensor([table[last] for table in tables]).double()
        if average == "probabilities":
            together = each.mean(dim=0)
        else:
            together = each.prod(dim=0) ** (1 / len(tables))
            together = together / together.sum()
        actual.append((total + together[EOS].log().item(), tokens))
        if len(tokens) < longest:
            for letter in letters:
                append([*tokens, letter], total + together[letter].log().item())

    append([], 0.0)
    return sorted(actual, reverse=True)


@each_average
@pytest.mark.parametrize("seed", range(5))
def test_wide_beam_finds_the_best_outputs_of_the_average(average, seed):
    tables = [chances(3 * seed + number) for number in range(3)]
    ensemble = Ensemble([Memoryless(table) for table in tables], average)
    (actual,) = ensemble.search(
        one_source(), beam_size=16, max_lengths=torch.tensor([3]), length_penalty=LengthPenalty()
    )
    expected = exhaust(tables, average, 3)
    assert [each.tokens for each in actual] == [tokens for _, tokens in expected[: len(actual)]]
    assert [e.log_prob for e in actual] == pytest.approx([w for w, _ in expected[: len(actual)]])


def test_averages_match_hand_calculation():
    said = torch.tensor([[[0.8, 0.1, 0.1]], [[0.2, 0.4, 0.4]]]).log()
    both = average_log_probs(said, "probabilities").exp()
    assert both[0].tolist() == pytest.approx([0.5, 0.25, 0.25])
    # Roots of 0.16, 0.04, 0.04 are 0.4, 0.2, 0.2; they sum to 0.8.
    both = average_log_probs(said, "log-probabilities").exp()
    assert both[0].tolist() == pytest.approx([0.5, 0.25, 0.25])
    said = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]], [[0.1, 0.9]]]).log()
    assert average_log_probs(said, "probabilities").exp()[0, 0].item() == pytest.approx(1.1 / 3)
    # The roots have the ratio 9^(-1/3), which is 1 / 2.0801.
    both = average_log_probs(said, "log-probabilities").exp()
    assert both[0, 0].item() == pytest.approx(1 / (1 + 9 ** (1 / 3)))


def test_token_excluded_by_one_member_is_excluded_only_by_log_averaging():
    said = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]).log()
    assert average_log_probs(said, "log-probabilities").exp()[0].tolist() == [1, 0]
    assert average_log_probs(said, "probabilities").exp()[0].tolist() == pytest.approx([0.75, 0.25])


def test_weights_are_the_mean_over_members_that_attend():
    wide = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    narrow = torch.tensor([[1.0], [0.0], [0.0]]).double()
    nowhere = torch.zeros(3, 0).half()
    together = average_weights([wide, narrow, nowhere])
    assert together.tolist() == [[0.75, 0.25, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


@each_average
@pytest.mark.parametrize("name", UNLIKE)
def test_ensemble_of_one_is_the_member(average, name):
    model, sources = build(name), collate_sources(texts(4))
    alone = Ensemble([model], average)
    options = {
        "beam_size": 3,
        "max_lengths": torch.full((4,), 6),
        "length_penalty": LengthPenalty(0.6),
    }
    plain, actual = model.search(sources, **options), alone.search(sources, **options)
    for ours, others in zip(actual, plain, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in others]
        for one, other in zip(ours, others, strict=True):
            assert one.score == pytest.approx(other.score)
            assert one.log_probs == pytest.approx(other.log_probs)
            assert one.weights == pytest.approx(other.weights)
            assert one.eos_weights == pytest.approx(other.eos_weights)


MUSTS = [[require_phrase([5, 6])], [], [require_phrase([4], [7, 7])]]
SEARCHES = {
    "greedy": (1, lambda rows: BeamSearchOptions()),
    "beam": (3, lambda rows: BeamSearchOptions()),
    "diverse": (4, lambda rows: BeamSearchOptions(diversity=BeamGroups(num_groups=2, penalty=1.0))),
    "constrained": (3, lambda rows: BeamSearchOptions(constraints=[MUSTS[row] for row in rows])),
}


@each_average
@pytest.mark.parametrize("kind", SEARCHES)
def test_search_of_different_members_does_not_depend_on_the_batch(average, kind):
    """And what they say of an output is what they say when they are told it."""
    ensemble, sequences = Ensemble(unlike(), average), texts(3)
    width, how = SEARCHES[kind]

    def found_for(rows):
        sources = collate_sources([sequences[row] for row in rows])
        limits, penalty = torch.full((len(rows),), 6), LengthPenalty()
        return ensemble.search(
            sources, beam_size=width, max_lengths=limits, length_penalty=penalty, options=how(rows)
        )

    together = found_for([0, 1, 2])
    for row, actual in enumerate(together):
        for must in MUSTS[row] if kind == "constrained" else []:
            assert any(contains(actual[0].tokens, phrase) for phrase in must.phrases)
    for row, alone in zip([2, 0], found_for([2, 0]), strict=True):
        assert [each.tokens for each in alone] == [each.tokens for each in together[row]]
    told = ensemble.score(collate_sources(sequences), [actual[0].tokens for actual in together])
    for each, actual in zip(told, together, strict=True):
        assert each.log_prob == pytest.approx(actual[0].log_prob)
        assert each.weights == pytest.approx(actual[0].weights, abs=1e-6)


@each_average
def test_different_members_can_be_sampled_from(average):
    ensemble, sources = (
        Ensemble(unlike(), average),
        collate_sources(texts(3)),
    )
    actual = ensemble.sample(
        sources, 2, max_lengths=torch.full((3,), 6), options=SamplingOptions(top_p=0.9), seed=0
    )
    for number in range(2):
        told = ensemble.score(sources, [row[number].tokens for row in actual])
        for each, row in zip(told, actual, strict=True):
            assert row[number].log_probs == pytest.approx(each.log_probs)


def test_members_averaged_in_the_highest_precision():
    members = [Memoryless(chances(number)) for number in range(2)]
    for finer, met in ((torch.half, torch.float), (torch.double, torch.double)):
        members[0].log_probs = members[0].log_probs.half()
        members[1].log_probs = members[1].log_probs.to(finer)
        ensemble = Ensemble(members, "probabilities")
        step = ensemble.step(torch.tensor([BOS]), ensemble.initial_state(one_source()))
        assert step.log_probs.dtype == met


def test_members_with_different_vocabularies_are_an_error():
    ensemble = Ensemble([Memoryless(chances(0, size)) for size in (6, 7)], "probabilities")
    with pytest.raises(ConfigError) as caught:
        ensemble.step(torch.tensor([BOS]), ensemble.initial_state(one_source()))
    assert str(caught.value) == (
        "ensemble: members have different vocabulary sizes: 6, 7\n"
        "  use models that were trained with the same vocabularies"
    )


def test_replaced_members_are_joined_as_before():
    names = "gru, attend-then-step", "transformer"
    first, second = map(build, names)
    lm = LanguageModelConfig(embedding_size=4).build(source_vocab_size=11, target_vocab_size=11)
    ensemble = Ensemble([first, second], "probabilities")
    fusion = ShallowFusion(ensemble, lm, weight=0.5, context_length=8)
    replaced = replace_members(fusion, [second, first])
    assert isinstance(replaced, ShallowFusion)
    assert replaced.model.averaging == "probabilities"
    assert list(ensemble_members(replaced)) == [second, first]
    assert list(ensemble_members(fusion)) == [first, second]
    assert replace_members(first, [second]) is second
