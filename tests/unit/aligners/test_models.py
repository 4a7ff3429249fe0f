"""Word aligners: posteriors by enumeration, expectation maximization, and a known dictionary."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.aligners.corpus import UNSEEN_PROB, build_corpus, digamma, iter_batches
from heedful.aligners.links import Link
from heedful.aligners.models import DiagonalAligner, HMMAligner, IBMModel1, log_partition
from heedful.aligners.training import (
    FastAlignConfig,
    HMMAlignerConfig,
    IBMModel1Config,
    ParallelTokens,
    align_corpus,
    predict_links,
)
from heedful.tokenization.ragged_array import RaggedArray

CONFIGS = {
    "ibm1": IBMModel1Config(num_iterations=3),
    "fast-align": FastAlignConfig(num_iterations=3),
    "hmm": HMMAlignerConfig(num_iterations=3, num_model1_iterations=2),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
sentences = st.lists(st.integers(0, 3), min_size=0, max_size=4)
corpora = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6).filter(
    lambda pairs: any(source and target for source, target in pairs)
)


def tokens(pairs):
    return ParallelTokens(*map(RaggedArray.from_sequences, zip(*pairs, strict=True)))


def link_prior(aligner, alignment, num_sources):
    """p(alignment) from the formula; position 0 is null."""
    num_targets, total, position = len(alignment), 1.0, 0
    for j, i in enumerate(alignment, start=1):
        if isinstance(aligner, IBMModel1):
            total *= 1 / (num_sources + 1)
        elif i == 0:
            total *= aligner.null_prob
        elif isinstance(aligner, DiagonalAligner):
            scores = [
                np.exp(-aligner.tension * abs(k / num_sources - j / num_targets))
                for k in range(1, num_sources + 1)
            ]
            total *= (1 - aligner.null_prob) * scores[i - 1] / sum(scores)
        else:
            distances = range(1 - aligner.max_length, aligner.max_length + 1)
            jump = dict(zip(distances, aligner.jumps, strict=True))
            learned = jump[i - position] / sum(
                jump[k - position] for k in range(1, num_sources + 1)
            )
            uniform = aligner.uniform_jump_prob
            total *= (1 - aligner.null_prob) * (uniform / num_sources + (1 - uniform) * learned)
        position = i or position
    return total


def translation_prob(table, source, target):
    """p(target | source); source None is null."""
    key = ((source + 1 if source is not None else 0) << 31) + target
    (found,) = np.nonzero(table.keys == key)
    return table.probs[found[0]] if len(found) else UNSEEN_PROB


def enumerate_alignments(aligner, source, target):
    """Return the posteriors (T, 1 + S) and the likelihood by enumerating all alignments."""
    posteriors = np.zeros((len(target), len(source) + 1))
    for alignment in product(range(len(source) + 1), repeat=len(target)):
        prob = link_prior(aligner, alignment, len(source))
        for word, i in zip(target, alignment, strict=True):
            prob *= translation_prob(aligner.table, source[i - 1] if i else None, word)
        posteriors[np.arange(len(target)), alignment] += prob
    likelihood = posteriors[0].sum()
    return posteriors / likelihood, likelihood


@each_config
@settings(max_examples=15)
@given(train=corpora, test=corpora)
def test_posteriors_equal_enumeration(config, train, test):
    aligner = config.train(tokens(train))
    if isinstance(aligner, HMMAligner):  # jumps of longer sentences are not in the formula
        test = [pair for pair in test if len(pair[0]) <= aligner.max_length] or train
    for batch in iter_batches(aligner.table, *tokens(test)):
        expectation = aligner.expect(batch)
        total = 0.0
        for row, found in zip(batch.rows, expectation.posteriors, strict=True):
            source, target = test[row]
            posteriors, likelihood = enumerate_alignments(aligner, source, target)
            np.testing.assert_allclose(found[: len(target)], posteriors, rtol=1e-8, atol=1e-12)
            assert (found[len(target) :] == 0).all()
            total += np.log(likelihood)
        assert expectation.log_likelihood == pytest.approx(total, rel=1e-9, abs=1e-9)


@each_config
@settings(max_examples=20)
@given(pairs=corpora)
def test_likelihood_never_falls(config, pairs):
    history = []
    corpus = tokens(pairs)
    table, batches = build_corpus(*corpus)
    for _, _, aligner in config.stages(table, int(corpus.source.lengths.max())):
        history = [aligner.em_step(batches) for _ in range(8)]
        assert (np.diff(history) >= -1e-9).all()


def test_model_1_step_equals_expected_counts_by_enumeration():
    pairs = [([0, 1], [0, 1, 1]), ([1], [1]), ([0, 2], [2])]
    table, batches = build_corpus(*tokens(pairs))
    aligner = IBMModel1(table)
    counts = {}
    for source, target in pairs:
        posteriors, _ = enumerate_alignments(aligner, source, target)
        for (j, word), i in product(enumerate(target), range(len(source) + 1)):
            key = (source[i - 1] if i else None, word)
            counts[key] = counts.get(key, 0) + posteriors[j, i]
    aligner.em_step(batches)
    for (source, target), count in counts.items():
        total = sum(other for key, other in counts.items() if key[0] == source)
        assert translation_prob(table, source, target) == pytest.approx(count / total)


@settings(max_examples=10)
@given(pairs=corpora, alpha=st.sampled_from([0.01, 0.5]))
def test_variational_bound_never_falls(pairs, alpha):
    """log p(targets) >= log-likelihood with exp(E[log p]) - KL(q || prior), which EM maximizes."""
    table, batches = build_corpus(*tokens(pairs))
    aligner = DiagonalAligner(table, alpha=alpha)
    sources = table.keys >> 31
    bounds = []
    for _ in range(8):
        counts = np.zeros(len(table) + 2)
        for batch in batches:
            np.add.at(counts, batch.cells, aligner.expect(batch).posteriors)
        divergence = 0.0
        for source in set(sources.tolist()):
            posterior = torch.distributions.Dirichlet(
                torch.tensor(counts[:-2][sources == source] + alpha)
            )
            prior = torch.distributions.Dirichlet(torch.full_like(posterior.concentration, alpha))
            divergence += torch.distributions.kl_divergence(posterior, prior).item()
        aligner.em_step(batches)
        bounds.append(sum(aligner.expect(batch).log_likelihood for batch in batches) - divergence)
    assert (np.diff(bounds) >= -1e-7).all()


@given(st.floats(0.1, 20), st.integers(1, 9), st.integers(1, 9), st.data())
def test_partition_function_equals_sum(tension, num_sources, num_targets, data):
    step = data.draw(st.integers(1, num_targets))
    positions = np.arange(1, num_sources + 1)
    scores = -tension * np.abs(positions / num_sources - step / num_targets)
    closed = log_partition(tension, np.array([[num_sources, num_targets, step]]))
    assert closed == pytest.approx(np.log(np.exp(scores).sum()))


def test_tension_is_the_maximum_of_the_expected_likelihood():
    words = np.random.default_rng(0).integers(0, 20, (60, 6))
    pairs = [(row.tolist(), row[[0, 2, 1, 3, 5, 4]].tolist()) for row in words]
    table, batches = build_corpus(*tokens(pairs))
    aligner = DiagonalAligner(table)
    for _ in range(3):
        aligner.em_step(batches)
    posteriors = [aligner.expect(batch).posteriors for batch in batches]
    aligner.update_prior([aligner.expect(batch).statistics for batch in batches])

    def expected(tension):
        other = DiagonalAligner(table, tension=tension)
        priors = [other.prior(batch) for batch in batches]
        return sum((p * np.log(q)).sum() for p, q in zip(posteriors, priors, strict=True))

    best = expected(aligner.tension)
    assert all(expected(aligner.tension + step) < best for step in (-0.01, 0.01))


def test_digamma_equals_torch():
    values = np.geomspace(1e-3, 1e6, 50)
    expected = torch.digamma(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(digamma(values), expected, rtol=1e-9, atol=1e-9)


@each_config
def test_links_of_a_pair_do_not_depend_on_the_other_pairs(config):
    rng = np.random.default_rng(1)
    pairs = [(rng.integers(0, 9, n).tolist(), rng.integers(0, 9, 7 - n).tolist()) for n in range(8)]
    aligner = config.train(tokens(pairs))
    together = predict_links(aligner, tokens(pairs))
    assert together == [predict_links(aligner, tokens([pair]))[0] for pair in pairs]
    assert together[0] == together[7] == set()  # a side is empty


def dictionary_corpus(num_pairs, size=60):
    """Sentences of a random dictionary in which neighbors change places, and their links."""
    rng = np.random.default_rng(3)
    dictionary = rng.permutation(size)
    pairs, gold = [], []
    for _ in range(num_pairs):
        source = rng.integers(0, size, rng.integers(3, 9))
        order = np.arange(len(source))
        swap = rng.integers(0, len(source) - 1)
        order[[swap, swap + 1]] = order[[swap + 1, swap]]
        pairs.append((source.tolist(), dictionary[source[order]].tolist()))
        gold.append({Link(int(i), j) for j, i in enumerate(order)})
    return pairs, gold


@each_config
@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
def test_dictionary_of_generated_pairs_is_recovered(config, direction):
    pairs, gold = dictionary_corpus(300)
    # Where a word occurs twice in a sentence, Model 1 cannot know which is meant.
    is_clear = [len({*source}) == len(source) for source, _ in pairs]
    found = align_corpus(config, tokens(pairs), direction=direction)
    clear = [(one, two) for one, two, clear in zip(found, gold, is_clear, strict=True) if clear]
    num_right = sum(len(links & right) for links, right in clear)
    error_rate = 1 - 2 * num_right / sum(len(links) + len(right) for links, right in clear)
    assert error_rate < 0.02
