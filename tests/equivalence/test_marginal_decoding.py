"""Exact hard attention: what a decoder gives is the sum over all paths through the source."""

from itertools import product

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignmentConfig
from heedful.attention.monotonic_alignment import MonotonicMarginalAlignmentConfig
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.decoder import RecurrentDecoderConfig
from heedful.pytree import select_rows
from heedful.search import LengthPenalty, beam_search, greedy_search

VOCABULARY, MEMORY, BEGIN, END = 6, 5, 1, 2
ALIGNMENTS = [MonotonicMarginalAlignmentConfig(), SoftmaxAlignmentConfig()]
each_alignment = pytest.mark.parametrize("align", ALIGNMENTS, ids=lambda it: it.type)

SETTINGS = {
    "embedding_size": 3,
    "hidden_size": 4,
    "wiring": {"type": "step-then-attend", "input_feeding": False},
    "attention": {"score": {"type": "bilinear"}, "readout": {"type": "per-position"}},
    "output_head": {"type": "marginal"},
}


def build(align):
    """A decoder whose weights are large enough to prefer some places and some tokens."""
    config = RecurrentDecoderConfig.model_validate(SETTINGS)
    attention = config.attention.model_copy(update={"alignment": align})
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


def select_beams(encoded, row):
    """One source without its padding."""
    length = encoded.lengths[row : row + 1]
    return EncoderOutput(
        encoded.states[row : row + 1, : int(length)], length, encoded.summary[[row]]
    )


def tables(decoder, inputs, targets, encoded):
    """Scores of every place, and what each would give the target, for every step of one source."""
    wiring, values = decoder.wiring, encoded.states[0]
    state = wiring.cells.initial_state(decoder.bridge(encoded))
    scores, chances = [], []
    for given, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        state = wiring.cells(decoder.embedding(torch.tensor([given])), state)
        hidden = state[-1][0][0]
        score = wiring.attention.score
        scores.append(score(hidden.view(1, 1, -1), score.prepare_keys(values.unsqueeze(0)))[0, 0])
        told = [torch.cat([value, hidden]) for value in values]
        features = [wiring.pre_output(each) for each in told]
        said = [decoder.output_head.projection(each).softmax(-1)[wanted] for each in features]
        chances.append(torch.stack(said))
    return scores, chances


def transition(scores, place, before, *, monotonic):
    """The chance that a token comes from `place` if the last came from `before`."""
    first = before if monotonic else 0
    return scores[first:].softmax(-1)[place - first] if place >= first else torch.tensor(0.0)


def by_enumeration(decoder, inputs, targets, encoded, *, monotonic):
    """The likelihood of a target: the sum over every path, of the product along it."""
    scores, chances = tables(decoder, inputs, targets, encoded)
    total = torch.zeros((), dtype=torch.double)
    for path in product(range(int(encoded.lengths)), repeat=len(targets)):
        likelihood, before = 1.0, 0
        for time, place in enumerate(path):
            moved = transition(scores[time], place, before, monotonic=monotonic)
            likelihood = likelihood * moved * chances[time][place]
            before = place
        total = total + likelihood
    return total.log()


def examples():
    targets = torch.tensor([[3, 5, 4, END], [4, 4, 3, END]])
    inputs = torch.cat([torch.full((2, 1), BEGIN), targets[:, :-1]], dim=1)
    return inputs, targets


def likelihoods(decoder, inputs, targets, encoded):
    log_probs = decoder(inputs, encoded).log_probs
    return log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


@each_alignment
def test_the_likelihood_of_a_target_is_the_sum_over_all_paths(align):
    decoder, encoded = build(align), sources(4, 2)
    inputs, targets = examples()
    cumulative_log_probs = likelihoods(decoder, inputs, targets, encoded).sum(-1)
    monotonic = align.type == "monotonic-marginal"
    for row in range(2):
        alone = (inputs[row], targets[row], select_beams(encoded, row))
        torch.testing.assert_close(
            cumulative_log_probs[row], by_enumeration(decoder, *alone, monotonic=monotonic)
        )


def test_gradients_are_those_of_the_sum_over_all_paths():
    align = MonotonicMarginalAlignmentConfig()
    decoder, encoded = build(align), sources(3)
    inputs, targets = examples()
    inputs, targets = inputs[:1, :3], targets[:1, :3]
    wholes = likelihoods(decoder, inputs, targets, encoded).sum()
    paths = by_enumeration(decoder, inputs[0], targets[0], encoded, monotonic=True)
    weights = list(decoder.parameters())
    ours, theirs = (torch.autograd.grad(each, weights) for each in (wholes, paths))
    torch.testing.assert_close(ours, theirs)


@each_alignment
def test_the_likelihoods_of_all_targets_sum_to_one(align):
    decoder, encoded = build(align), sources(3)
    count = VOCABULARY**3
    every = torch.tensor(list(product(range(VOCABULARY), repeat=3)))
    inputs = torch.cat([torch.full((count, 1), BEGIN), every[:, :-1]], dim=1)
    repeated = select_rows(
        encoded._replace(auxiliary_losses=None), torch.zeros(count, dtype=torch.long)
    )
    cumulative_log_probs = likelihoods(decoder, inputs, every, repeated).sum(-1)
    torch.testing.assert_close(cumulative_log_probs.exp().sum(), torch.ones((), dtype=torch.double))


@each_alignment
def test_step_by_step_is_the_whole_sequence_and_padding_changes_nothing(align):
    decoder, encoded = build(align), sources(4, 2)
    inputs, _ = examples()
    whole = decoder(inputs, encoded)
    for row in range(2):
        state = decoder.initial_state(select_beams(encoded, row))
        for time, tokens in enumerate(inputs[row].split(1)):
            step = decoder.step(tokens, state)
            state = step.state
            places = step.weights.size(-1)
            torch.testing.assert_close(step.log_probs[0], whole.log_probs[row, time])
            torch.testing.assert_close(step.weights[0], whole.weights[row, time, :places])
    assert (whole.weights[1, :, 2:] == 0).all()


@each_alignment
def test_a_search_carries_what_is_yet_unsettled_and_finds_what_training_says(align):
    decoder, encoded = build(align), sources(4, 2, 3)
    rows = {"bos": BEGIN, "eos": END, "max_lengths": torch.tensor([4, 4, 4])}
    found = beam_search(decoder, decoder.initial_state(encoded), beam_size=3, **rows)
    greedy = greedy_search(
        decoder, decoder.initial_state(encoded), length_penalty=LengthPenalty(), **rows
    )
    for row, hypotheses in enumerate([*found, *([each] for each in greedy)]):
        for hypothesis in hypotheses:
            targets = torch.tensor([[*hypothesis.tokens, END]])
            inputs = torch.tensor([[BEGIN, *hypothesis.tokens]])
            total = likelihoods(decoder, inputs, targets, select_beams(encoded, row % 3)).sum()
            assert hypothesis.log_prob == pytest.approx(total.item(), rel=1e-5)
