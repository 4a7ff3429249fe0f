import copy

import pytest
import torch

from heedful.training.objectives import CrossEntropyObjective, LossTerms
from heedful.training.trainer import ExponentialMovingAverage, GradientClipper, Trainer
from tests.catalogue import batch, build, store


class NaNObjective(CrossEntropyObjective):
    """A loss of NaN."""

    def __call__(self, model, examples, step, unwrapped_model):
        return LossTerms(model(examples).log_probs.sum() * torch.nan, {})


def build_trainer(objective=None, **options):
    model = copy.deepcopy(build("gru, attend-then-step"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Trainer(
        model, objective or CrossEntropyObjective(), optimizer, lambda step: step / 10, **options
    )


def examples():
    return batch(store(), [0, 1, 2])


def test_train_step_uses_the_learning_rate_of_the_step():
    trainer = build_trainer()
    rates = [trainer.train_step([examples()]).learning_rate for _ in range(3)]
    assert rates == [0.1, 0.2, 0.3]
    assert trainer.optimizer.param_groups[0]["lr"] == 0.3


def test_trainer_follows_the_mode_of_the_model():
    trainer = build_trainer()
    modes = []
    trainer.model.register_forward_pre_hook(lambda module, *_: modes.append(module.training))
    for mode in (True, False, True):
        trainer.model.train(mode)
        trainer.train_step([examples()])
    assert modes == [True, False, True]


def test_param_group_scales_the_learning_rate():
    trainer = build_trainer()
    trainer.optimizer.param_groups[0]["lr_scale"] = 0.5
    trainer.train_step([examples()])
    assert trainer.optimizer.param_groups[0]["lr"] == 0.05


def test_gradient_is_clipped_to_max_norm():
    trainer = build_trainer(clipping=GradientClipper(max_norm=1e-3))
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    metrics = trainer.train_step([examples()])
    assert metrics.grad_norm > 1e-3
    updates = [
        (weight.detach() - old) / 0.1
        for weight, old in zip(trainer.model.parameters(), before, strict=True)
    ]
    norm = torch.cat([update.flatten() for update in updates]).norm().item()
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_nan_loss_skips_the_step_with_a_reason():
    trainer = build_trainer(NaNObjective())
    trainer.ema = ExponentialMovingAverage(trainer.model, 0.5)
    before = copy.deepcopy(trainer.model.state_dict())
    metrics = trainer.train_step([examples()])
    assert metrics.skip_reason == (
        "loss is nan, gradient norm is nan (first in encoder.embedding.embedding.weight)"
    )
    assert trainer.step == 1
    for state in (trainer.model.state_dict(), trainer.ema.state_dict()):
        for name, weight in state.items():
            assert torch.equal(weight, before[name])
    trainer.objective = CrossEntropyObjective()
    assert trainer.train_step([examples()]).skip_reason == "", "the NaN gradients are dropped"


def test_rng_states_before_the_step_kept():
    trainer = build_trainer()
    before = torch.get_rng_state()
    assert torch.equal(trainer.start_step([examples()]).rng_states["cpu"], before)
