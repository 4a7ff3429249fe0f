"""Exact hard attention: decoder likelihoods equal the sum over all alignment paths."""

from itertools import product

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignmentConfig
from heedful.attention.monotonic_alignment import MonotonicMarginalAlignmentConfig
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.pytree import select_rows
from heedful.search import beam_search, greedy_search

VOCABULARY, MEMORY, BOS, EOS = 6, 5, 1, 2
ALIGNMENTS = [MonotonicMarginalAlignmentConfig(), SoftmaxAlignmentConfig()]
all_alignments = pytest.mark.parametrize("alignment", ALIGNMENTS, ids=lambda it: it.type)

SETTINGS = {
    "embedding_size": 3,
    "hidden_size": 4,
    "wiring": {"type": "step-then-attend", "input_feeding": False},
    "attention": {"score": {"type": "bilinear"}, "readout": {"type": "per-position"}},
    "output_head": {"type": "marginal"},
}


def build(alignment):
    """Build a decoder with parameters large enough for clear preferences."""
    config = RecurrentDecoderConfig.model_validate(SETTINGS)
    attention = config.attention.model_copy(update={"alignment": alignment})
    config = config.model_copy(update={"attention": attention})
    decoder = config.build(vocab_size=VOCABULARY, memory_size=MEMORY).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.mul_(3)
    return decoder


def sources(*lengths):
    states = torch.randn(len(lengths), max(lengths), MEMORY, dtype=torch.double)
    summary = torch.randn(len(lengths), MEMORY, dtype=torch.double)
    return EncoderOutput(states, torch.tensor(lengths), summary)


def select_source(encoded, row):
    """Return one source without its padding."""
    length = encoded.lengths[row : row + 1]
    return EncoderOutput(
        encoded.states[row : row + 1, : int(length)], length, encoded.summary[[row]]
    )


def scores_and_probabilities(decoder, inputs, targets, encoded):
    """Return scores of positions and target probabilities given a position, for each step."""
    wiring, values = decoder.wiring, encoded.states[0]
    state = wiring.cells.initial_state(decoder.bridge(encoded))
    scores, probabilities = [], []
    for token, target in zip(inputs.tolist(), targets.tolist(), strict=True):
        state = wiring.cells(decoder.embedding(torch.tensor([token])), state)
        hidden = state[-1][0][0]
        score = wiring.attention.score
        scores.append(score(hidden.view(1, 1, -1), score.prepare_keys(values.unsqueeze(0)))[0, 0])
        step_inputs = [torch.cat([value, hidden]) for value in values]
        features = [wiring.pre_output(item) for item in step_inputs]
        token_probabilities = [
            decoder.output_head.projection(item).softmax(-1)[target] for item in features
        ]
        probabilities.append(torch.stack(token_probabilities))
    return scores, probabilities


def transition(scores, position, previous, *, monotonic):
    """Return the probability of `position` given the position of the last token."""
    first = previous if monotonic else 0
    return scores[first:].softmax(-1)[position - first] if position >= first else torch.tensor(0.0)


def by_enumeration(decoder, inputs, targets, encoded, *, monotonic):
    """Return the log-likelihood of a target as a sum over all paths."""
    scores, probabilities = scores_and_probabilities(decoder, inputs, targets, encoded)
    total = torch.zeros((), dtype=torch.double)
    for path in product(range(int(encoded.lengths)), repeat=len(targets)):
        likelihood, previous = 1.0, 0
        for step, position in enumerate(path):
            step_probability = transition(scores[step], position, previous, monotonic=monotonic)
            likelihood = likelihood * step_probability * probabilities[step][position]
            previous = position
        total = total + likelihood
    return total.log()


def examples():
    targets = torch.tensor([[3, 5, 4, EOS], [4, 4, 3, EOS]])
    inputs = torch.cat([torch.full((2, 1), BOS), targets[:, :-1]], dim=1)
    return inputs, targets


def likelihoods(decoder, inputs, targets, encoded):
    log_probs = decoder(inputs, encoded).log_probs
    return log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


@all_alignments
def test_likelihood_is_sum_over_all_alignment_paths(alignment):
    decoder, encoded = build(alignment), sources(4, 2)
    inputs, targets = examples()
    log_likelihoods = likelihoods(decoder, inputs, targets, encoded).sum(-1)
    monotonic = alignment.type == "monotonic-marginal"
    for row in range(2):
        single = (inputs[row], targets[row], select_source(encoded, row))
        torch.testing.assert_close(
            log_likelihoods[row], by_enumeration(decoder, *single, monotonic=monotonic)
        )


def test_gradients_match_sum_over_all_alignment_paths():
    alignment = MonotonicMarginalAlignmentConfig()
    decoder, encoded = build(alignment), sources(3)
    inputs, targets = examples()
    inputs, targets = inputs[:1, :3], targets[:1, :3]
    total = likelihoods(decoder, inputs, targets, encoded).sum()
    paths = by_enumeration(decoder, inputs[0], targets[0], encoded, monotonic=True)
    weights = list(decoder.parameters())
    ours, theirs = (torch.autograd.grad(item, weights) for item in (total, paths))
    torch.testing.assert_close(ours, theirs)


@all_alignments
def test_likelihoods_of_all_targets_sum_to_one(alignment):
    decoder, encoded = build(alignment), sources(3)
    count = VOCABULARY**3
    all_targets = torch.tensor(list(product(range(VOCABULARY), repeat=3)))
    inputs = torch.cat([torch.full((count, 1), BOS), all_targets[:, :-1]], dim=1)
    repeated = select_rows(
        encoded._replace(auxiliary_losses=None), torch.zeros(count, dtype=torch.long)
    )
    log_likelihoods = likelihoods(decoder, inputs, all_targets, repeated).sum(-1)
    torch.testing.assert_close(log_likelihoods.exp().sum(), torch.ones((), dtype=torch.double))


@all_alignments
def test_stepwise_decoding_same_as_whole_sequence(alignment):
    decoder, encoded = build(alignment), sources(4, 2)
    inputs, _ = examples()
    whole = decoder(inputs, encoded)
    for row in range(2):
        state = decoder.initial_state(select_source(encoded, row))
        for step, tokens in enumerate(inputs[row].split(1)):
            step_output = decoder.step(tokens, state)
            state = step_output.state
            positions = step_output.weights.size(-1)
            torch.testing.assert_close(step_output.log_probs[0], whole.log_probs[row, step])
            torch.testing.assert_close(step_output.weights[0], whole.weights[row, step, :positions])
    assert (whole.weights[1, :, 2:] == 0).all()


@all_alignments
def test_beam_search_scores_match_training_likelihood(alignment):
    decoder, encoded = build(alignment), sources(4, 2, 3)
    rows = {"bos": BOS, "eos": EOS, "max_lengths": torch.tensor([4, 4, 4])}
    beams = beam_search(decoder, decoder.initial_state(encoded), beam_size=3, **rows)
    greedy = greedy_search(decoder, decoder.initial_state(encoded), **rows)
    for row, hypotheses in enumerate([*beams, *([item] for item in greedy)]):
        for hypothesis in hypotheses:
            targets = torch.tensor([[*hypothesis.tokens, EOS]])
            inputs = torch.tensor([[BOS, *hypothesis.tokens]])
            total = likelihoods(decoder, inputs, targets, select_source(encoded, row % 3)).sum()
            assert hypothesis.log_prob == pytest.approx(total.item(), rel=1e-5)
