import copy

import pytest
import torch

from heedful.training import CrossEntropyObjective, LossTerms
from heedful.training.callbacks import Callback
from heedful.training.trainer import ExponentialMovingAverage, GradientClipper, Trainer, fit
from tests.catalogue import batch, build, store


class Broken(CrossEntropyObjective):
    """Not a number."""

    def __call__(self, model, examples, step, unwrapped_model):
        return LossTerms(model(examples).log_probs.sum() * torch.nan, {})


class ProgressReporter(Callback):
    def __init__(self):
        self.seen = []

    def on_step_end(self, metrics):
        self.seen.append(metrics.step)


def student(objective=None, **options):
    model = copy.deepcopy(build("gru, attend-then-step"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Trainer(
        model, objective or CrossEntropyObjective(), optimizer, lambda step: step / 10, **options
    )


def examples():
    return batch(store(), [0, 1, 2])


def test_an_update_takes_the_learning_rate_of_its_step():
    learner = student()
    rates = [learner.train_step([examples()]).learning_rate for _ in range(3)]
    assert rates == [0.1, 0.2, 0.3]
    assert learner.optimizer.param_groups[0]["lr"] == 0.3


def test_a_group_of_weights_takes_its_share_of_the_rate():
    learner = student()
    learner.optimizer.param_groups[0]["scale"] = 0.5
    learner.train_step([examples()])
    assert learner.optimizer.param_groups[0]["lr"] == 0.05


def test_a_long_gradient_is_shortened_to_the_limit():
    learner = student(clipping=GradientClipper(max_norm=1e-3))
    before = [weight.detach().clone() for weight in learner.model.parameters()]
    report = learner.train_step([examples()])
    assert report.grad_norm > 1e-3
    moved = [
        (weight.detach() - old) / 0.1
        for weight, old in zip(learner.model.parameters(), before, strict=True)
    ]
    length = torch.cat([change.flatten() for change in moved]).norm().item()
    assert length == pytest.approx(1e-3, rel=1e-3)


def test_from_a_loss_that_is_no_number_nothing_is_learned_and_it_says_why():
    learner = student(Broken())
    learner.ema = ExponentialMovingAverage(learner.model, 0.5)
    before = copy.deepcopy(learner.model.state_dict())
    report = learner.train_step([examples()])
    assert report.skip_reason == (
        "the loss is nan and the gradient's norm nan; the first bad gradient is that of "
        "encoder.embedding.table.weight"
    )
    assert learner.step == 1
    for kept in (learner.model.state_dict(), learner.ema.state_dict()):
        for name, weight in kept.items():
            assert torch.equal(weight, before[name])
    learner.objective = CrossEntropyObjective()
    assert learner.train_step([examples()]).skip_reason == "", "what was no number is forgotten"


def test_where_the_generators_stood_before_an_update_is_known_after_it():
    learner = student()
    stood = torch.get_rng_state()
    learner.train_step([examples()])
    assert torch.equal(learner.rng_states_before_step["cpu"], stood)


def test_fit_groups_batches_and_stops_when_told():
    learner, counting = student(), ProgressReporter()
    no_end_error = iter(examples, None)

    def until(report, group):
        assert len(group) == 2
        return report.step == 3

    fit(
        learner,
        no_end_error,
        should_stop=until,
        gradient_accumulation_steps=2,
        callbacks=[counting],
    )
    assert counting.seen == [1, 2, 3]


def test_fit_ends_when_the_batches_do():
    learner = student()
    fit(
        learner,
        [examples()] * 5,
        should_stop=lambda report, group: False,
        gradient_accumulation_steps=2,
    )
    assert learner.step == 3
