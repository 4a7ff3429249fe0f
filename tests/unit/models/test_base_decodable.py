"""What can be asked for outputs: searched, drawn from, told; all three say the same."""

import pytest
import torch

from heedful.data.text.batching import collate_sources
from heedful.search.logits_processors import ForbiddenTokens, ForcedPrefix, MinLength, NoRepeatNGram
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import EOS
from tests.catalogue import build, texts
from tests.shape_checking import unchecked

LONGEST = 6
SYSTEMS_OF_EACH_SORT = [
    "gru, attend-then-step",
    "alignment monotonic",
    "marginal over softmax",
    "heads with coverage",
    "sutskever",
    "prefix LM, gru",
    "transformer",
    "convolutional",
    "dilated",
]
each_sort = pytest.mark.parametrize("name", SYSTEMS_OF_EACH_SORT)


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Outputs take many steps, and `test_steps.py` has checked the shapes of each."""
    with unchecked():
        yield


def limits(rows, longest=LONGEST):
    return torch.full((rows,), longest)


def drawn(model, sequences, count=3, *, keys=None, how=None, rules=(), seed=0):
    return model.sample(
        collate_sources(sequences),
        count,
        max_lengths=limits(len(sequences)),
        options=how or SamplingOptions(),
        seed=seed,
        seed_keys=keys,
        processors=rules,
    )


def said(actual):
    return [[each.tokens for each in row] for row in actual]


@each_sort
def test_samples_have_the_scores_of_forced_decoding(name):
    model, sequences = build(name), texts(4)
    actual = drawn(
        model, sequences, how=SamplingOptions(temperature=1.5), rules=(ForbiddenTokens([1]),)
    )
    for number in range(3):
        outputs = [row[number] for row in actual]
        told = model.score(collate_sources(sequences), [each.tokens for each in outputs])
        for one, other in zip(outputs, told, strict=True):
            assert one.log_prob == one.score == pytest.approx(other.log_prob)
            assert one.log_probs == pytest.approx(other.log_probs)
            assert one.weights == pytest.approx(other.weights, abs=1e-6)
            assert one.eos_weights == pytest.approx(other.eos_weights, abs=1e-6)


@each_sort
def test_samples_depend_on_the_key_and_not_on_the_batch(name):
    model, sequences = build(name), texts(4)
    together = drawn(model, sequences, keys=[10, 11, 12, 13])
    turned = drawn(model, sequences[::-1], keys=[13, 12, 11, 10])
    assert said(turned) == said(together)[::-1]
    for key, (sequence, company) in enumerate(zip(sequences, together, strict=True), 10):
        (alone,) = drawn(model, [sequence], keys=[key])
        assert said([alone]) == said([company])
        assert [each.log_prob for each in alone] == pytest.approx([e.log_prob for e in company])


def test_samples_differ_by_seed_key_and_index():
    model, sequences = build("gru, attend-then-step"), [texts(3)[-1]] * 2
    how = SamplingOptions(temperature=5.0)
    first, second = said(drawn(model, sequences, 20, how=how))
    (other,) = said(drawn(model, sequences[:1], 20, how=how, seed=1))
    assert len({tuple(tokens) for tokens in [*first, *second, *other]}) > 50


def test_fewer_samples_are_the_first_of_more():
    model, sequences = build("transformer"), texts(3)
    many, few = drawn(model, sequences, 5), drawn(model, sequences, 2)
    assert [row[:2] for row in said(many)] == said(few)


def test_samples_obey_the_processors_of_sentence():
    model, sequences = build("gru, attend-then-step"), texts(3)
    prefixes, least = [[5, 6], [], [7]], torch.tensor([3, 0, 5])
    rules = (ForcedPrefix(prefixes), MinLength(least, eos=EOS), NoRepeatNGram(1))
    actual = drawn(model, sequences, 8, rules=rules, how=SamplingOptions(temperature=2.0))
    for row, prefix, shortest in zip(said(actual), prefixes, least.tolist(), strict=True):
        for tokens in row:
            assert tokens[: len(prefix)] == prefix
            assert shortest <= len(tokens) <= LONGEST
            assert len(set(tokens)) == len(tokens)


def test_maximum_lengths_are_per_sentence():
    model = build("transformer")
    longest = torch.tensor([0, 3, 1])
    actual = model.sample(
        collate_sources(texts(3)),
        10,
        max_lengths=longest,
        options=SamplingOptions(forbidden_tokens=(EOS,)),
        seed=0,
    )
    assert [{len(each.tokens) for each in row} for row in actual] == [{0}, {3}, {1}]
