"""What a model says by itself: drawn as likely as it finds it, told as it would step by step."""

import copy
from collections import Counter
from itertools import chain

import pytest
import torch

from heedful.attention.penalties import CoverageLoss
from heedful.nested import select
from heedful.search.sampling import Sampling
from heedful.text.vocabulary import BOS, EOS
from heedful.training.objectives.outputs import Limits, Output, draw, references, tell
from tests.catalogue import batch, build, store
from tests.shape_checking import unchecked
from tests.unit.training.objectives.toy import LIMITS, Toy, everything, likelihood, toy_batch

SYSTEMS_OF_EACH_SORT = [
    "lstm, attend-then-step",
    "alignment sampled",
    "alignment monotonic",
    "marginal over softmax",
    "gnmt",
    "experts",
    "deep fusion",
    "transformer",
    "transformer, experts",
    "continuation, gru",
    "decoder only, both learned",
    "convolutional",
    "dilated",
]
# P(chi-square > 70) is less than 1e-6 for twenty degrees of freedom, and less for fewer.
UNLIKELY = 70.0


@pytest.mark.parametrize("source", [0, 1])
def test_outputs_are_drawn_as_likely_as_the_model_finds_them(source):
    model, count = Toy(), 20_000
    examples = select(toy_batch(), torch.tensor([source]))
    limits = LIMITS(examples)
    (drawn,) = draw(model, examples, limits, count=count)
    wanted = {
        output: count * likelihood(model.logits, source, output).item()
        for output in everything(int(limits))
    }
    assert sum(wanted.values()) == pytest.approx(count)
    found = Counter(drawn)
    assert found.keys() <= wanted.keys()
    assert sum((found[each] - n) ** 2 / n for each, n in wanted.items()) < UNLIKELY


def step_by_step(model, sources, output):
    """How likely an output is, asked for token by token as in search."""
    state, total, last = model.start(sources), 0.0, BOS
    for token in output.targets:
        step = model.step(torch.tensor([last]), state)
        total, state, last = total + step.log_probs[0, token].item(), step.state, token
    return total


@pytest.mark.parametrize("name", SYSTEMS_OF_EACH_SORT)
@torch.no_grad()
def test_outputs_are_as_likely_as_they_are_step_by_step(name):
    """Whole, cut and empty ones, and those that hold the padding symbol."""
    with unchecked():
        model, examples = build(name), batch(store(3), [0, 1, 2])
        drawn = draw(model, examples, Limits(1.0, 1)(examples), count=2)
        outputs = [
            [*drawn[0], Output(())],
            [Output((5, 0, 6)), *drawn[1], Output((7, 0), is_cut=True)],
            [references(examples)[2]],
        ]
        told = tell(model, examples, outputs)
        for row, each in enumerate(outputs):
            alone = select(examples.sources, torch.tensor([row]))
            wanted = [step_by_step(model, alone, output) for output in each]
            wanted += [-torch.inf] * (4 - len(each))
            torch.testing.assert_close(told.log_likelihoods[row].tolist(), wanted)


def test_references_are_the_targets_without_their_end():
    assert references(toy_batch()) == [Output((4,)), Output(())]
    examples = batch(store(5), [0, 3, 4], extra=2)
    assert [list(each.tokens) for each in references(examples)] == [
        [token for token in row if token not in (0, EOS)] for row in examples.targets.tolist()
    ]


def test_an_output_that_reaches_its_limit_is_cut_and_others_end():
    model = Toy()
    for limit in (1, 2):
        limits = torch.tensor([limit, limit])
        for output in chain(*draw(model, toy_batch(), limits, count=200)):
            assert output.is_cut == (len(output.tokens) == limit)
            assert output.targets[-1] != EOS if output.is_cut else output.targets[-1] == EOS


def test_the_likeliest_is_drawn_at_temperature_zero():
    model = Toy()
    (first,), (second,) = draw(
        model, toy_batch(), torch.tensor([2, 2]), count=1, how=Sampling(temperature=0)
    )
    for source, output in enumerate([first, second]):
        code = 0
        for token in output.targets:
            assert token == model.logits[source, code].argmax()
            code = 5 * code + 1 + token


def test_the_same_state_of_chance_gives_the_same_outputs():
    model, limits = Toy(), torch.tensor([2, 2])
    state = torch.get_rng_state()
    first = draw(model, toy_batch(), limits, count=50)
    second = draw(model, toy_batch(), limits, count=50)
    torch.set_rng_state(state)
    assert draw(model, toy_batch(), limits, count=50) == first != second


def test_a_model_is_asked_as_it_is_used_and_is_afterwards_as_it_was():
    model = copy.deepcopy(build("transformer")).train()
    model.encoder.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    modes = [module.training for module in model.modules()]
    examples, greedy = batch(store(4), [0, 1, 2, 3]), Sampling(temperature=0)
    limits = Limits(1.0, 1)(examples)
    drawn = draw(model, examples, limits, count=1, how=greedy)
    assert [module.training for module in model.modules()] == modes
    assert drawn == draw(model.eval(), examples, limits, count=1, how=greedy)


def test_penalties_are_the_mean_over_the_outputs_of_a_source():
    model = copy.deepcopy(build("gru, attend-then-step"))
    model.decoder.wiring.attention.penalties.append(CoverageLoss(2.0))
    examples = batch(store(3), [0, 1, 2])
    outputs = [
        [Output((4, 5)), Output(())],
        [Output((6,)), Output((7,), is_cut=True)],
        [Output((5,))],
    ]
    one_by_one = [
        tell(model, select(examples, torch.tensor([row])), [[output]]).penalties["coverage"]
        for row, each in enumerate(outputs)
        for output in each
    ]
    together = tell(model, examples, outputs).penalties["coverage"]
    torch.testing.assert_close(together, sum(one_by_one) / 5 * 3)
