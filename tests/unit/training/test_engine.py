import pytest
import torch

from heedful.training.engine import Learner, NonFiniteError, fit
from heedful.training.objectives import Loss
from tests.catalogue import batch, build, store


def student(loss=None, max_grad_norm=1.0):
    model = build("gru, attend-then-step")

    def nll(each, examples):
        said = each(examples).log_probs.gather(-1, examples.targets[..., None])
        return Loss(-said.sum(), {})

    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Learner(
        model, loss or nll, optimizer, lambda step: step / 10, max_grad_norm=max_grad_norm
    )


def examples():
    return batch(store(), [0, 1, 2])


def test_an_update_takes_the_learning_rate_of_its_step():
    learner = student()
    rates = [learner.update([examples()]).learning_rate for _ in range(3)]
    assert rates == [0.1, 0.2, 0.3]
    assert learner.optimizer.param_groups[0]["lr"] == 0.3


def test_a_long_gradient_is_shortened_to_the_limit():
    learner = student(max_grad_norm=1e-3)
    before = [weight.detach().clone() for weight in learner.model.parameters()]
    report = learner.update([examples()])
    assert report.grad_norm > 1e-3
    moved = [
        (weight.detach() - old) / 0.1
        for weight, old in zip(learner.model.parameters(), before, strict=True)
    ]
    length = torch.cat([change.flatten() for change in moved]).norm().item()
    assert length == pytest.approx(1e-3, rel=1e-3)


def test_a_loss_that_is_no_number_stops_before_the_update_and_says_where():
    def broken(model, examples):
        return Loss(model(examples).log_probs.sum() * torch.nan, {})

    learner = student(broken)
    before = [weight.detach().clone() for weight in learner.model.parameters()]
    with pytest.raises(NonFiniteError) as caught:
        learner.update([examples()])
    assert str(caught.value) == (
        "training step 1: the loss is nan and the gradient's norm nan; the first bad gradient is "
        "that of encoder.embedding.table.weight\n"
        "  nothing was learned from this step; lower training.optimizer.learning_rate "
        "or training.max_grad_norm"
    )
    for weight, old in zip(learner.model.parameters(), before, strict=True):
        assert torch.equal(weight, old)


def test_fit_groups_batches_and_stops_when_told():
    learner, seen = student(), []
    endless = iter(examples, None)
    fit(
        learner,
        endless,
        until=lambda report: report.step == 3,
        accumulate=2,
        observers=[lambda report: seen.append(report.step)],
    )
    assert seen == [1, 2, 3]


def test_fit_ends_when_the_batches_do():
    learner = student()
    fit(learner, [examples()] * 5, until=lambda report: False, accumulate=2)
    assert learner.step == 3
