"""Sampling: frequencies equal probabilities, and rows do not influence each other."""

from collections import Counter
from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import StepOutput, greedy_search
from heedful.search.logits_processors import ForbiddenTokens, ForcedPrefix, MinLength, NoRepeatNGram
from heedful.search.sampling import SamplingOptions, random_generators, sample, sample_steps
from tests.shape_checking import unchecked
from tests.unit.search.tables import BOS, EOS, TableModel

VOCAB_SIZE = 6
NUM_SAMPLES = 8_000
# P(chi-square > 38) is less than 1e-6 for four degrees of freedom, and less for fewer.
MAX_CHI_SQUARE = 38.0


class BigramModel:
    """The distribution depends on the last token and on the index of the row."""

    def __init__(self, seed=0, num_rows=1):
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(num_rows, VOCAB_SIZE, VOCAB_SIZE, generator=generator)
        logits[:, :, BOS] = -torch.inf
        self.log_probs = logits.log_softmax(dim=-1)

    def step(self, tokens, state):
        log_probs = self.log_probs[state % len(self.log_probs), tokens]
        return StepOutput(log_probs, state, log_probs.new_zeros(len(tokens), 0))


def draw(model, rows, max_length, options=None, *, eos=EOS, seed=0, processors=()):
    rows = torch.as_tensor(rows)
    return sample(
        model,
        rows,
        bos=torch.full_like(rows, BOS),
        eos=eos,
        max_lengths=torch.full_like(rows, max_length),
        options=options,
        seed=seed,
        processors=processors,
    )


def first_token_counts(options=None, processors=()):
    outputs = draw(BigramModel(), [0] * NUM_SAMPLES, 1, options, eos=None, processors=processors)
    return torch.bincount(torch.tensor(outputs).flatten(), minlength=VOCAB_SIZE)


def chi_square(counts, probs):
    assert counts[probs == 0].sum() == 0
    expected = counts.sum() * probs[probs > 0]
    return ((counts[probs > 0] - expected) ** 2 / expected).sum()


def filtered_probs(options):
    """The distribution after all filters, token by token from the definitions."""
    log_probs = BigramModel().log_probs[0, BOS].double()
    log_probs[list(options.forbidden_tokens)] = -torch.inf
    probs = (log_probs / options.temperature).exp().tolist()
    ranking = sorted(range(VOCAB_SIZE), key=lambda token: -probs[token])[: options.top_k]
    total, nucleus = sum(probs[token] for token in ranking), []
    for token in ranking:
        if probs[token] and sum(probs[other] for other in nucleus) / total < options.top_p:
            nucleus.append(token)
    nucleus = [token for token in nucleus if probs[token] >= options.min_p * probs[ranking[0]]]
    total = sum(probs[token] for token in nucleus)
    normalized = {token: probs[token] / total for token in nucleus}
    entropy = -sum(prob * log(prob) for prob in normalized.values())
    typical, mass = [], 0.0
    for token in sorted(nucleus, key=lambda token: abs(-log(normalized[token]) - entropy)):
        if mass < options.typical_p:
            typical.append(token)
        mass += normalized[token]
    total = sum(normalized[token] for token in typical)
    return [normalized[token] / total if token in typical else 0 for token in range(VOCAB_SIZE)]


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(),
        SamplingOptions(temperature=0.5),
        SamplingOptions(temperature=3.0),
        SamplingOptions(top_k=3),
        SamplingOptions(top_p=0.8),
        SamplingOptions(top_p=1e-9),
        SamplingOptions(temperature=2.0, top_k=4, top_p=0.7),
        SamplingOptions(min_p=0.1),
        SamplingOptions(min_p=1.0),
        SamplingOptions(typical_p=0.5),
        SamplingOptions(typical_p=0.95),
        SamplingOptions(typical_p=1e-9),
        SamplingOptions(temperature=5.0, forbidden_tokens=(1, 3)),
        SamplingOptions(temperature=3.0, top_k=5, top_p=0.95, min_p=0.05, typical_p=0.8),
    ],
    ids=str,
)
def test_token_frequencies_equal_filtered_probabilities(options):
    probs = torch.tensor(filtered_probs(options))
    assert chi_square(first_token_counts(options), probs) < MAX_CHI_SQUARE


def test_successive_tokens_of_a_row_are_independent():
    """Bigrams are as frequent as the product of their probabilities."""
    model = BigramModel()
    model.log_probs = model.log_probs[:, BOS : BOS + 1].expand(1, VOCAB_SIZE, VOCAB_SIZE)
    outputs = torch.tensor(draw(model, [0] * NUM_SAMPLES, 2, eos=None))
    bigrams = outputs[:, 0] * VOCAB_SIZE + outputs[:, 1]
    counts = torch.bincount(bigrams, minlength=VOCAB_SIZE**2)
    probs = model.log_probs[0, 0].exp()
    # For 24 degrees of freedom P(chi-square > 80) is less than 1e-6.
    assert chi_square(counts, (probs[:, None] * probs).flatten()) < 80


@given(seed=st.integers(0, 99), num_rows=st.integers(1, 6), max_length=st.integers(0, 8))
def test_samples_do_not_depend_on_other_rows(seed, num_rows, max_length):
    model = BigramModel(seed, num_rows=num_rows)
    outputs = draw(model, range(num_rows), max_length, seed=seed)
    more = draw(model, [*range(num_rows), 0, 0], max_length, seed=seed)
    assert more[:num_rows] == outputs
    assert all(len(tokens) <= max_length and EOS not in tokens for tokens in outputs)


def test_samples_depend_on_row_and_seed():
    model = BigramModel()
    outputs = draw(model, [0] * 50, 20, eos=None)
    others = draw(model, [0] * 50, 20, eos=None, seed=1)
    assert len({tuple(tokens) for tokens in outputs + others}) == 100
    assert draw(model, [0] * 50, 20, eos=None) == outputs


@pytest.mark.parametrize("options", [SamplingOptions(temperature=0), SamplingOptions(top_k=1)])
@given(seed=st.integers(0, 99))
def test_sampling_the_most_likely_token_is_greedy_search(options, seed):
    model = BigramModel(seed, num_rows=4)
    rows, max_lengths = torch.arange(4), torch.full((4,), 7)
    greedy = greedy_search(model, rows, bos=BOS, eos=EOS, max_lengths=max_lengths)
    assert draw(model, rows, 7, options, seed=seed) == [output.tokens for output in greedy]


def test_rows_have_own_max_lengths():
    outputs = sample(
        BigramModel(),
        torch.zeros(3).long(),
        bos=torch.full((3,), BOS),
        eos=None,
        max_lengths=torch.tensor([3, 0, 1]),
    )
    assert [len(tokens) for tokens in outputs] == [3, 0, 1]


@given(seed=st.integers(0, 99))
def test_typical_sampling_may_exclude_the_most_likely_token(seed):
    """The entropy of 0.6 and ten times 0.04 is 1.59 nats, of 0.3 and ten times 0.07 it is 2.22."""
    log_probs = torch.tensor([[0.6, *[0.04] * 10]]).log()
    uniforms = torch.rand(1, generator=torch.Generator().manual_seed(seed)).tolist()
    # |-log 0.6 - 1.59| = 1.08 and |-log 0.04 - 1.59| = 1.63: the most likely token is closer.
    assert SamplingOptions(typical_p=0.2).sample_tokens(log_probs, uniforms).tolist() == [0]
    flat = torch.tensor([[0.3, *[0.07] * 10]]).log()  # 1.02 from the first, 0.44 from the others
    assert SamplingOptions(typical_p=0.2).sample_tokens(flat, uniforms).tolist() != [0]


@given(seed=st.integers(0, 99))
def test_samples_satisfy_processors(seed):
    min_length = MinLength(torch.full((4,), 2), eos=EOS)
    processors = (NoRepeatNGram(1), ForbiddenTokens([4]), min_length)
    model = BigramModel(seed, num_rows=4)
    for tokens in draw(model, range(4), 7, seed=seed, processors=processors):
        assert 4 not in tokens
        assert len(set(tokens)) == len(tokens) >= 2


def test_processors_keep_proportions_of_allowed_tokens():
    probs = BigramModel().log_probs[0, BOS].exp()
    probs[2] = 0
    counts = first_token_counts(processors=(ForbiddenTokens([2]),))
    assert chi_square(counts, probs / probs.sum()) < MAX_CHI_SQUARE


@pytest.mark.parametrize(
    "options", [SamplingOptions(), SamplingOptions(top_k=4), SamplingOptions(top_p=0.99)], ids=str
)
def test_rounding_does_not_swap_almost_equal_tokens(options):
    """A batch of another size rounds differently, which must not change the samples."""
    log_probs = torch.tensor([0.3, 0.2, 0.2, 0.2, 0.1]).double().log()
    errors = 1e-12 * torch.tensor([[0, 1, 0, -1, 0], [0, -1, 0, 1, 0], [0, 0, 1, 0, 0]])
    uniforms = [index / 100 + 0.005 for index in range(100)]
    samples = [
        options.sample_tokens(
            (log_probs + error).expand(100, -1).log_softmax(dim=-1), uniforms
        ).tolist()
        for error in errors
    ]
    assert samples[0] == samples[1] == samples[2]


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(),
        SamplingOptions(temperature=1.7),
        SamplingOptions(top_k=2),
        SamplingOptions(top_p=0.7),
    ],
    ids=str,
)
def test_largest_uniform_samples_a_possible_token(options):
    """Rounding may reach the total probability, beyond which there is no token."""
    log_probs = torch.tensor([[0.1, 0.2, 0.7, 0.0]]).log()
    assert options.sample_tokens(log_probs, [1 - 2**-53]).item() == 2
    assert options.sample_tokens(log_probs, [1.0]).item() == 2


def test_random_generators_depend_on_key_and_seed():
    numbers = [generator.random() for generator in random_generators(3, [7, "7 0", 8])]
    reordered = [generator.random() for generator in random_generators(3, [8, 7])]
    assert reordered == [numbers[2], numbers[0]]
    others = [generator.random() for generator in random_generators(4, [7, "7 0", 8])]
    assert len({*numbers, *others}) == 6


def draw_hypotheses(model, sentence_ids, max_lengths, *, options=None, processors=(), seed=0):
    rows = torch.tensor(sentence_ids)
    *_, recorder = sample_steps(
        model,
        (rows, torch.full((len(rows), model.max_depth + 2), BOS)),
        bos=BOS,
        eos=EOS,
        sentence_ids=rows,
        max_lengths=torch.tensor(max_lengths),
        options=options or SamplingOptions(),
        generators=random_generators(seed, range(len(rows))),
        processors=processors,
    )
    return recorder.hypotheses()


@pytest.mark.parametrize("max_length", [0, 1, 2])
def test_output_frequencies_equal_probabilities(max_length):
    """EOS is certain at the maximum length; all else is as the table says."""
    model = TableModel(5, 2)
    with unchecked():
        outputs = draw_hypotheses(model, [0] * NUM_SAMPLES, [max_length])
    counts = Counter(tuple(output.tokens) for output in outputs)
    expected = {}
    for tokens in model.outputs(max_length):
        log_probs = model.token_log_probs(tokens)
        log_prob = sum(log_probs[:-1]) if len(tokens) == max_length else sum(log_probs)
        expected[tuple(tokens)] = NUM_SAMPLES * exp(log_prob)
    assert sum(expected.values()) == pytest.approx(NUM_SAMPLES)
    assert counts.keys() <= expected.keys()
    # P(chi-square > 75) is less than 1e-6 for 24 degrees of freedom, and less for fewer.
    assert sum((counts[tokens] - n) ** 2 / n for tokens, n in expected.items()) < 75


@given(seed=st.integers(0, 9999), processors=st.sampled_from([(), (ForbiddenTokens([2]),)]))
def test_sampled_hypotheses_carry_model_log_probs(seed, processors):
    """Processors and temperature change what is sampled, not its log-probabilities."""
    model, sentence_ids = TableModel(seed, 4, num_sentences=3), [0, 0, 1, 2, 2]
    options = SamplingOptions(temperature=2.0)
    outputs = draw_hypotheses(
        model, sentence_ids, [4, 2, 0], options=options, processors=processors, seed=seed
    )
    for output, sentence in zip(outputs, sentence_ids, strict=True):
        log_probs = model.token_log_probs(output.tokens, sentence)
        assert len(output.tokens) <= [4, 2, 0][sentence]
        assert output.log_probs.tolist() == pytest.approx(log_probs)
        assert output.log_prob == output.score == pytest.approx(sum(log_probs))
        weights = model.output_weights(output.tokens).numpy()
        assert output.weights == pytest.approx(weights[:-1])
        assert output.eos_weights == pytest.approx(weights[-1])


def test_sample_that_cannot_end_is_cut_off_with_log_prob_of_minus_infinity():
    model = TableModel(3, 2, num_sentences=2)
    model.log_probs[0, :, EOS] = -torch.inf
    cut_off, output = draw_hypotheses(model, [0, 1], [2, 2])
    assert len(cut_off.tokens) == 2
    assert cut_off.log_probs.tolist() == pytest.approx(model.token_log_probs(cut_off.tokens))
    assert cut_off.log_prob == -torch.inf
    assert output.log_prob == pytest.approx(sum(model.token_log_probs(output.tokens, 1)))


def test_processors_that_cannot_fit_reported():
    message = "prefix of sentence 1: the prefix has 3 tokens"
    with pytest.raises(ConfigError, match=message):
        draw_hypotheses(TableModel(0, 2), [0], [2], processors=(ForcedPrefix([[2, 2, 2]]),))
