"""Distributions over tags: equal to enumeration of all tag sequences, with exact gradients."""

from itertools import pairwise, product

import pytest
import torch

from heedful.layers.crf import LinearChainCRF, SoftmaxTagHead
from heedful.tasks.tagging.predictor import is_valid_transition, transition_penalties
from tests.shape_checking import unchecked

LENGTHS = [4, 2, 1, 0]
NUM_LABELS = 3


@pytest.fixture(params=["softmax", "crf"])
def head(request):
    if request.param == "softmax":
        return SoftmaxTagHead().double()
    crf = LinearChainCRF(NUM_LABELS).double()
    for index, parameter in enumerate(crf.parameters()):
        generator = torch.Generator().manual_seed(index)
        torch.nn.init.normal_(parameter, generator=generator)
    return crf


@pytest.fixture
def scores():
    generator = torch.Generator().manual_seed(7)
    emissions = torch.randn(4, 4, NUM_LABELS, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    return emissions, mask


def path_score(head, emissions, path):
    """The formula of the paper, term by term."""
    total = sum(emissions[step, tag] for step, tag in enumerate(path))
    if isinstance(head, LinearChainCRF) and path:
        total = total + head.start[path[0]] + head.end[path[-1]]
        total = total + sum(head.transitions[a, b] for a, b in pairwise(path))
    return total


def enumerate_paths(head, emissions, length):
    """Return all tag sequences with their probabilities."""
    paths = list(product(range(NUM_LABELS), repeat=length))
    totals = torch.stack([torch.as_tensor(path_score(head, emissions, path)) for path in paths])
    return paths, totals.double().softmax(dim=0)


def test_log_likelihood_equals_enumeration(head, scores):
    emissions, mask = scores
    tags = torch.tensor([[0, 2, 1, 1], [2, 0, 9, 9], [1, 9, 9, 9], [9, 9, 9, 9]])
    actual = head.log_likelihood(emissions, tags, mask)
    for row, length in enumerate(LENGTHS):
        paths, probabilities = enumerate_paths(head, emissions[row], length)
        index = paths.index(tuple(tags[row, :length].tolist()))
        torch.testing.assert_close(actual[row], probabilities[index].log())


def test_marginals_equal_enumeration(head, scores):
    emissions, mask = scores
    actual = head.log_marginals(emissions, mask)
    for row, length in enumerate(LENGTHS):
        paths, probabilities = enumerate_paths(head, emissions[row], length)
        expected = torch.zeros(length, NUM_LABELS, dtype=torch.float64)
        for path, probability in zip(paths, probabilities, strict=True):
            for step, tag in enumerate(path):
                expected[step, tag] += probability.detach()
        torch.testing.assert_close(actual[row, :length].exp(), expected)
        assert (actual[row, length:] == 0).all()


def test_decoded_tags_are_the_best_of_all(head, scores):
    emissions, mask = scores
    actual = head.decode(emissions, mask)
    for row, length in enumerate(LENGTHS):
        paths, probabilities = enumerate_paths(head, emissions[row], length)
        assert tuple(actual[row, :length].tolist()) == paths[int(probabilities.argmax())]


def test_gradients_equal_finite_differences(head, scores):
    emissions, mask = scores
    tags = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    inputs = [emissions.clone().requires_grad_(), *head.parameters()]

    def loss(emissions, *_):
        return head.log_likelihood(emissions, tags, mask), head.log_marginals(emissions, mask)

    with unchecked():
        assert torch.autograd.gradcheck(loss, inputs)


def test_half_precision_emissions_summed_in_float32(head, scores):
    emissions, mask = scores
    tags = torch.zeros(4, 4, dtype=torch.long)
    head.float()
    half = head.log_likelihood(emissions.bfloat16(), tags, mask)
    torch.testing.assert_close(half, head.log_likelihood(emissions.bfloat16().float(), tags, mask))


def is_valid_path(tags, scheme):
    return all(is_valid_transition(a, b, scheme) for a, b in pairwise([None, *tags, None]))


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_constrained_tags_are_the_best_valid_ones(head, scores, scheme):
    emissions, mask = scores
    labels = {"bio": ["O", "B-X", "I-X"], "bioes": ["S-X", "B-X", "E-X"]}[scheme]
    penalties = transition_penalties(labels, scheme)
    actual = head.decode(emissions, mask, penalties)
    for row, length in enumerate(LENGTHS):
        paths, probabilities = enumerate_paths(head, emissions[row], length)
        valid = [
            (probability.item(), path)
            for path, probability in zip(paths, probabilities, strict=True)
            if is_valid_path([labels[tag] for tag in path], scheme)
        ]
        assert tuple(actual[row, :length].tolist()) == max(valid)[1]


@pytest.mark.parametrize(
    ("scheme", "previous", "tag", "is_valid"),
    [
        ("bio", None, "I-X", False),
        ("bio", "B-X", "I-X", True),
        ("bio", "B-Y", "I-X", False),
        ("bio", "I-X", "O", True),
        ("bio", "NOUN", "INTJ", True),
        ("bioes", "B-X", "O", False),
        ("bioes", "B-X", "E-X", True),
        ("bioes", "I-X", None, False),
        ("bioes", "E-X", None, True),
        ("bioes", "S-X", "B-X", True),
        ("bioes", "O", "E-X", False),
    ],
)
def test_valid_transitions(scheme, previous, tag, is_valid):
    assert is_valid_transition(previous, tag, scheme) == is_valid
