"""Minimum risk against its definition, over all that a small model can ever say."""

import copy

import pytest
import torch

from heedful.attention.auxiliary_losses import CoverageLoss
from heedful.pytree import select_rows
from heedful.tokenization.vocabulary import EOS
from heedful.training.objectives import MinimumRiskObjective
from heedful.training.rollouts import (
    LengthLimit,
    PairReward,
    RolloutSampler,
    gleu,
    reference_outputs,
    sample_rollouts,
    score_candidates,
    sentence_bleu,
)
from tests.catalogue import batch, build, store
from tests.unit.training.toy import LIMITS, REFERENCES, Toy, everything, likelihood, toy_batch


def objective(
    samples, *, reward=sentence_bleu, sharpness=1.0, limits=LIMITS, auxiliary_loss_weight=1.0
):
    trial = RolloutSampler(PairReward(reward), limits, num_samples=samples)
    return MinimumRiskObjective(
        rollout_sampler=trial, alpha=sharpness, auxiliary_loss_weight=auxiliary_loss_weight
    )


def risk(model, sharpness, candidates):
    """The definition, one source and one output at a time."""
    total = 0.0
    for source, outputs in enumerate(candidates):
        powers = [likelihood(model.logits, source, each) ** sharpness for each in outputs]
        risks = [1 - sentence_bleu(each.tokens, REFERENCES[source]) for each in outputs]
        total += sum(p * r for p, r in zip(powers, risks, strict=True)) / sum(powers)
    return total


def gradient(loss, model):
    return torch.autograd.grad(loss, model.logits)[0]


@pytest.mark.parametrize("sharpness", [0.3, 1.0])
def test_minimum_risk_of_all_outputs_has_exact_value_and_gradient(sharpness):
    """At sharpness one that is the expected risk itself: all likelihoods add up to one."""
    model, limits = Toy(), LIMITS(toy_batch()).tolist()
    space = [list(everything(limit)) for limit in limits]
    drawn = sample_rollouts(model, toy_batch(), LIMITS(toy_batch()), num_samples=4000)
    assert [set(each) for each in drawn] == [set(each) for each in space]
    wanted = risk(model, sharpness, space)
    found = objective(4000, sharpness=sharpness)(model, toy_batch(), 1, model).main_loss
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradient(found, model), gradient(wanted, model))


def test_candidates_are_distinct_and_include_the_reference():
    model = Toy(scale=3.0)
    torch.manual_seed(7)
    drawn = sample_rollouts(model, toy_batch(), LIMITS(toy_batch()), num_samples=8)
    candidates = [
        {reference, *each}
        for reference, each in zip(reference_outputs(toy_batch()), drawn, strict=True)
    ]
    assert any(len(each) < 8 for each in candidates)
    wanted = risk(model, 0.5, candidates)
    torch.manual_seed(7)
    found = objective(8, sharpness=0.5)(model, toy_batch(), 1, model).main_loss
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradient(found, model), gradient(wanted, model))


def test_perfect_outputs_have_no_risk_and_no_gradient():
    model = Toy()
    with torch.no_grad():
        model.logits.zero_()
        model.logits[0, 0, 4] = model.logits[0, 1 + 4, EOS] = model.logits[1, 0, EOS] = 60
    found = objective(5)(model, toy_batch(), 1, model).main_loss
    assert found == 0
    assert (gradient(found, model) == 0).all()


def test_minimum_risk_is_a_sum_over_sentences():
    model, examples = build("gru, attend-then-step"), batch(store(4), [0, 1, 2, 3], extra=2)
    assert objective(3).normalizer(examples) == 4
    likely = copy.deepcopy(model)
    with torch.no_grad():
        likely.decoder.output_head.projection.weight.mul_(1e5)  # it always says the same
    whole = objective(2, reward=gleu)(likely, examples, 1, likely).main_loss
    rows = [select_rows(examples, torch.tensor([row])) for row in range(4)]
    parts = [objective(2, reward=gleu)(likely, each, 1, likely).main_loss for each in rows]
    torch.testing.assert_close(whole, sum(parts))


def test_auxiliary_losses_weighted_and_not_in_the_main_loss():
    plain = build("gru, attend-then-step")
    model, examples = copy.deepcopy(plain), batch(store(4), [0, 1, 2, 3])
    model.decoder.wiring.attention.auxiliary_losses.append(CoverageLoss(2.0))
    torch.manual_seed(1)
    error, auxiliary_losses = objective(3, limits=LengthLimit(1.5, 2), auxiliary_loss_weight=0.25)(
        model, examples, 1, model
    )
    torch.manual_seed(1)
    drawn = sample_rollouts(model, examples, LengthLimit(1.5, 2)(examples), num_samples=3)
    outputs = [
        list(dict.fromkeys([reference, *each]))
        for reference, each in zip(reference_outputs(examples), drawn, strict=True)
    ]
    wanted = score_candidates(model, examples, outputs).auxiliary_losses["coverage"] / 4
    torch.testing.assert_close(auxiliary_losses["coverage"], wanted)
    torch.manual_seed(1)
    bare = objective(3, limits=LengthLimit(1.5, 2))(plain, examples, 1, plain)
    assert bare.auxiliary_losses == {}
    torch.testing.assert_close(error, bare.main_loss)


@pytest.mark.parametrize("name", ["gru, attend-then-step", "transformer"])
def test_every_parameter_has_a_gradient_under_bfloat16(name):
    model, examples = copy.deepcopy(build(name)).float(), batch(store(4), [0, 1, 2, 3])
    seen = []
    for is_half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            found = objective(5)(model, examples, 1, model).main_loss
        assert found.dtype == torch.float
        found.backward()
        seen.append({name for name, weight in model.named_parameters() if weight.grad is not None})
    assert seen[0] == seen[1]
    assert any(weight.grad.any() for weight in model.parameters())
