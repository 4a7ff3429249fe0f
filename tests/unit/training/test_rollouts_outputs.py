"""What a model says by itself: drawn as likely as it finds it, told as it would step by step."""

import copy
from collections import Counter
from itertools import chain

import pytest
import torch

from heedful.attention.auxiliary_losses import CoverageLoss
from heedful.pytree import select_rows
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import BOS, EOS
from heedful.training.rollouts import (
    LengthLimit,
    Rollout,
    reference_outputs,
    sample_rollouts,
    score_candidates,
)
from tests.catalogue import batch, build, store
from tests.shape_checking import unchecked
from tests.unit.training.toy import LIMITS, Toy, everything, likelihood, toy_batch

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
    "prefix LM, gru",
    "decoder only, both learned",
    "convolutional",
    "dilated",
]
# P(chi-square > 70) is less than 1e-6 for twenty degrees of freedom, and less for fewer.
UNLIKELY = 70.0


@pytest.mark.parametrize("source", [0, 1])
def test_rollouts_follow_the_distribution_of_the_model(source):
    model, count = Toy(), 20_000
    examples = select_rows(toy_batch(), torch.tensor([source]))
    limits = LIMITS(examples)
    (drawn,) = sample_rollouts(model, examples, limits, num_samples=count)
    wanted = {
        output: count * likelihood(model.logits, source, output).item()
        for output in everything(int(limits))
    }
    assert sum(wanted.values()) == pytest.approx(count)
    found = Counter(drawn)
    assert found.keys() <= wanted.keys()
    assert sum((found[each] - n) ** 2 / n for each, n in wanted.items()) < UNLIKELY


def run_scheduled_sampling(model, sources, output):
    """How likely an output is, asked for token by token as in search."""
    state, total, last = model.initial_state(sources), 0.0, BOS
    for token in output.targets:
        step = model.step(torch.tensor([last]), state)
        total, state, last = total + step.log_probs[0, token].item(), step.state, token
    return total


@pytest.mark.parametrize("name", SYSTEMS_OF_EACH_SORT)
@torch.no_grad()
def test_sequence_log_probs_match_stepwise_decoding(name):
    """Whole, cut and empty ones, and those that hold the padding symbol."""
    with unchecked():
        model, examples = build(name), batch(store(3), [0, 1, 2])
        drawn = sample_rollouts(model, examples, LengthLimit(1.0, 1)(examples), num_samples=2)
        outputs = [
            [*drawn[0], Rollout(())],
            [Rollout((5, 0, 6)), *drawn[1], Rollout((7, 0), is_truncated=True)],
            [reference_outputs(examples)[2]],
        ]
        told = score_candidates(model, examples, outputs)
        for row, each in enumerate(outputs):
            alone = select_rows(examples.sources, torch.tensor([row]))
            wanted = [run_scheduled_sampling(model, alone, output) for output in each]
            wanted += [-torch.inf] * (4 - len(each))
            torch.testing.assert_close(told.sequence_log_probs[row].tolist(), wanted)


def test_references_are_targets_without_eos():
    assert reference_outputs(toy_batch()) == [Rollout((4,)), Rollout(())]
    examples = batch(store(5), [0, 3, 4], extra=2)
    assert [list(each.tokens) for each in reference_outputs(examples)] == [
        [token for token in row if token not in (0, EOS)] for row in examples.targets.tolist()
    ]


def test_rollout_at_the_length_limit_is_truncated():
    model = Toy()
    for limit in (1, 2):
        limits = torch.tensor([limit, limit])
        for output in chain(*sample_rollouts(model, toy_batch(), limits, num_samples=200)):
            assert output.is_truncated == (len(output.tokens) == limit)
            assert output.targets[-1] != EOS if output.is_truncated else output.targets[-1] == EOS


def test_same_random_state_returns_same_rollouts():
    model, limits = Toy(), torch.tensor([2, 2])
    state = torch.get_rng_state()
    first = sample_rollouts(model, toy_batch(), limits, num_samples=50)
    second = sample_rollouts(model, toy_batch(), limits, num_samples=50)
    torch.set_rng_state(state)
    assert sample_rollouts(model, toy_batch(), limits, num_samples=50) == first != second


def test_sampling_uses_eval_mode_and_restores_modes():
    model = copy.deepcopy(build("transformer")).train()
    model.encoder.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    modes = [module.training for module in model.modules()]
    examples, greedy = batch(store(4), [0, 1, 2, 3]), SamplingOptions(temperature=0)
    limits = LengthLimit(1.0, 1)(examples)
    drawn = sample_rollouts(model, examples, limits, num_samples=1, options=greedy)
    assert [module.training for module in model.modules()] == modes
    assert drawn == sample_rollouts(model.eval(), examples, limits, num_samples=1, options=greedy)


@pytest.mark.parametrize("name", ["transformer", "lstm, attend-then-step"])
def test_outputs_scored_as_they_were_sampled(name):
    """With dropout, E[d log p(y)] would not be zero, and each baseline would add a bias."""
    model = copy.deepcopy(build(name)).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    examples = batch(store(3), [0, 1, 2])
    outputs = [[Rollout((4, 5)), Rollout(())], [Rollout((6,))], [Rollout((5,))]]
    scored = score_candidates(model, examples, outputs).sequence_log_probs
    assert all(module.training for module in model.modules())
    scored[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())
    expected = score_candidates(model.eval(), examples, outputs).sequence_log_probs
    torch.testing.assert_close(scored, expected, rtol=1e-6, atol=1e-6)


def test_auxiliary_losses_are_means_over_outputs():
    model = copy.deepcopy(build("gru, attend-then-step"))
    model.decoder.wiring.attention.auxiliary_losses.append(CoverageLoss(2.0))
    examples = batch(store(3), [0, 1, 2])
    outputs = [
        [Rollout((4, 5)), Rollout(())],
        [Rollout((6,)), Rollout((7,), is_truncated=True)],
        [Rollout((5,))],
    ]
    one_by_one = [
        score_candidates(
            model, select_rows(examples, torch.tensor([row])), [[output]]
        ).auxiliary_losses["coverage"]
        for row, each in enumerate(outputs)
        for output in each
    ]
    together = score_candidates(model, examples, outputs).auxiliary_losses["coverage"]
    torch.testing.assert_close(together, sum(one_by_one) / 5 * 3)
