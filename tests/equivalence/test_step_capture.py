"""Captured steps equal plain ones.

Without a GPU the step is run as it would be captured: with its inputs in fixed tensors, without a
synchronization, and with an update that the optimizer skips by itself.
"""

import copy
import math

import pytest
import torch
from torch import nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import Batch
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.pytree import map_tensors
from heedful.recipes import load_recipe
from heedful.tasks.task_data import BatchShape, VocabSizes
from heedful.tasks.translation.task import TASK
from heedful.training.config import TrainingConfig
from heedful.training.distributed import SINGLE_PROCESS, get_rng_states, set_rng_states
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.step_capture import CapturedUpdate, StaticStep, plain_step_reason
from heedful.training.trainer import Trainer
from tests.catalogue import SYSTEMS, batch, build, each_system, store

CPU, GPU = torch.device("cpu"), torch.device("cuda")
ROWS = [[0, 1, 2], [3, 5], [6, 4, 2]]
NAMES = ["gru, attend-then-step", "transformer over convolutions"]
RECIPES = [
    "attention-classifier-small",
    "bert-small",
    "bilstm-crf",
    "copynet-2016",
    "deepar-2020-small",
    "draw-window-small",
    "gpt-tiny",
    "pointer-network-2015",
    "ram-2014-cluttered",
    "ram-2014-stopping",
    "transformer-forecaster-small",
]


def build_trainer(name, device=CPU):
    model = copy.deepcopy(build(name)).to(device).train()
    parameters = list(model.parameters())
    groups = [{"params": parameters[::2], "lr_scale": 0.5}, {"params": parameters[1::2]}]
    optimizer = torch.optim.AdamW(groups, fused=True)
    objective = CrossEntropyObjective(label_smoothing=0.1)
    return Trainer(model, objective, optimizer, lambda step: 1e-3 * step, device=device)


def run_static_step(trainer, batches, learning_rate):
    step = StaticStep(trainer, batches)
    step.warm_up()
    step.load(batches, sum(examples.num_targets for examples in batches), learning_rate)
    step.run()
    trainer.optimizer.zero_grad()
    return step.losses.tolist()


def assert_same_parameters(first: nn.Module, second: nn.Module) -> None:
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_static_steps_equal_plain_steps(name):
    plain, static = build_trainer(name), build_trainer(name)
    for number, rows in enumerate(ROWS, start=1):
        batches = [batch(store(), rows), batch(store(), [number])]
        torch.manual_seed(number)
        expected = plain.train_step(batches)
        torch.manual_seed(number)
        loss, *_, norm = run_static_step(static, batches, 1e-3 * number)
        assert (loss, norm) == pytest.approx((expected.loss, expected.grad_norm), rel=1e-6)
    assert_same_parameters(plain.model, static.model)
    assert [group["lr"] for group in static.optimizer.param_groups] == [1e-3, 1e-3]


def test_warm_up_changes_no_buffer():
    def count(model, _):
        model.num_calls += 1

    trainer = build_trainer(NAMES[0])
    trainer.model.register_buffer("num_calls", torch.zeros(()))
    trainer.model.register_forward_pre_hook(count)
    step = StaticStep(trainer, [batch(store(), ROWS[0])])
    step.warm_up()
    assert trainer.model.num_calls == 0
    step.run()
    assert trainer.model.num_calls == 1


def build_from_recipe(name, rows=3, device=CPU, settings=()):
    """Return a recipe, a trainer of its model and a batch."""
    recipe = load_recipe(name, settings)
    sizes = VocabSizes(30, 30)
    torch.manual_seed(0)
    model = recipe.task.build_model(recipe, sizes).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    objective = recipe.task.build_objective(recipe.training)
    trainer = Trainer(model, objective, optimizer, lambda step: 1e-3, device=device)
    shape = BatchShape(7, 6)
    if recipe.task.name == "forecasting":
        shape = BatchShape(0, recipe.model.shape.length)
    return recipe, trainer, recipe.task.data.dummy_batch(recipe.model, sizes, shape, rows)


@pytest.mark.parametrize("name", RECIPES)
def test_static_step_of_each_task_equals_a_plain_step(name):
    (_, plain, examples), (_, static, _) = build_from_recipe(name), build_from_recipe(name)
    torch.manual_seed(1)
    expected = plain.train_step([examples])
    torch.manual_seed(1)
    step = StaticStep(static, [map_tensors(torch.zeros_like, examples)])
    step.load([examples], plain.objective.normalizer(examples), 1e-3)
    step.run()
    loss, *_, norm = step.losses.tolist()
    assert (loss, norm) == pytest.approx((expected.loss, expected.grad_norm), rel=1e-6)
    assert_same_parameters(plain.model, static.model)


@pytest.mark.parametrize("name", ["bilstm-crf", "copynet-2016", "pointer-network-2015"])
def test_rows_of_padding_change_no_gradient_of_each_task(name):
    few_rows = ["training.batching.max_tokens=260"]
    recipe, trainer, examples = build_from_recipe(name, settings=few_rows)
    trainer.model.eval()
    with_padding = recipe.task.data.pad_batch(recipe, examples)
    assert len(with_padding.targets) > len(examples.targets)
    assert trainer.objective.normalizer(with_padding) == trainer.objective.normalizer(examples)
    results = []
    for rows in (examples, with_padding):
        loss = trainer.objective(trainer.model, rows, 1, trainer.model).main_loss
        parameters = list(trainer.model.parameters())
        results.append((loss, *torch.autograd.grad(loss, parameters, allow_unused=True)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("name", NAMES)
def test_static_step_that_is_not_finite_changes_nothing(name):
    trainer = build_trainer(name)
    trainer.train_step([batch(store(), ROWS[0])])
    with torch.no_grad():
        trainer.model.decoder.output_head.projection.bias[7] = math.nan
    before = (
        copy.deepcopy(trainer.model.state_dict()),
        copy.deepcopy(trainer.optimizer.state_dict()),
    )
    losses = run_static_step(trainer, [batch(store(), ROWS[1])], 1e-3)
    assert math.isnan(losses[0])
    after = trainer.model.state_dict(), trainer.optimizer.state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)


class Recipe:
    """The section that `pad_batch` reads."""

    training = TrainingConfig.model_validate({"batching": {"max_tokens": 100}})


def padded(examples: Batch) -> Batch:
    return TASK.data.pad_batch(Recipe, examples)


@each_system
def test_rows_of_padding_change_no_gradient(name):
    model, examples = build(name), batch(store(), ROWS[0])
    if any(isinstance(module, MixtureOfExperts) for module in model.modules()):
        pytest.skip("experts balance all rows of a batch")
    with_padding = padded(examples)
    assert len(with_padding.targets) == 100 // (
        examples.sources.tokens.size(1) + examples.targets.size(1)
    )
    gradients = []
    for rows in (examples, with_padding):
        terms = CrossEntropyObjective()(model, rows, 1, model)
        loss = sum(terms.auxiliary_losses.values(), terms.main_loss)
        parameters = [p for p in model.parameters() if p.requires_grad]
        gradients.append((loss, *torch.autograd.grad(loss, parameters, allow_unused=True)))
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, ""),
        ({"precision": "fp16"}, "the loss scale of fp16 changes with the step"),
        ({"optimizer": {"type": "sgd"}}, "the optimizer 'sgd' has no fused step"),
        ({"objective": {"type": "minimum-risk"}}, "the objective 'minimum-risk' decodes"),
        ({"scheduled_sampling": {"type": "linear"}}, "scheduled sampling changes with the step"),
        ({"guided_alignment": {}}, "guided alignment looks up links on the CPU"),
    ],
)
def test_settings_that_cannot_be_captured_have_a_reason(settings, reason):
    config = TrainingConfig.model_validate(settings)
    assert plain_step_reason(config, SINGLE_PROCESS) == reason


# ----- on a GPU


def captured_trainer(name, log=print):
    trainer = build_trainer(name, device=GPU)
    trainer.captured_update = CapturedUpdate(trainer, log)
    return trainer


@pytest.mark.gpu
@pytest.mark.parametrize("name", SYSTEMS)
def test_captured_steps_equal_plain_steps(name):
    messages = []
    plain, captured = build_trainer(name, device=GPU), captured_trainer(name, messages.append)
    for number, rows in enumerate([*ROWS, *ROWS], start=1):
        batches = [batch(store(), rows)]
        torch.manual_seed(number)
        expected = plain.train_step(batches)
        torch.manual_seed(number)
        metrics = captured.train_step(batches)
        # Adam divides gradients that are almost zero by their own size.
        assert metrics.loss == pytest.approx(expected.loss, rel=1e-5 if number < 4 else 1e-3)
    has_experts = any(isinstance(module, MixtureOfExperts) for module in plain.model.modules())
    assert any("without CUDA graphs" in line for line in messages) == has_experts


@pytest.mark.gpu
@pytest.mark.parametrize("move", ["validation", "clone"])
def test_captured_steps_follow_parameters_that_are_moved(move):
    """A validation must leave them in place; whatever else moves them is noticed."""
    name, messages = "gru, attend-then-step", []
    plain, captured = build_trainer(name, device=GPU), captured_trainer(name, messages.append)
    for number in range(6):
        batches = [batch(store(), ROWS[0])]
        torch.manual_seed(number)
        expected = plain.train_step(batches)
        torch.manual_seed(number)
        assert captured.train_step(batches).loss == pytest.approx(expected.loss, rel=1e-3)
        for trainer in (plain, captured):
            if move == "validation":
                accelerate_for_inference(trainer.model, GPU)
                trainer.model.train()
            else:
                for parameter in trainer.model.parameters():
                    parameter.data = parameter.data.clone()
        torch.cuda.empty_cache()
    assert any("moved" in line for line in messages) == (move == "clone")


@pytest.mark.gpu
@pytest.mark.parametrize("name", RECIPES)
def test_captured_steps_of_each_task_equal_plain_steps(name):
    messages = []
    _, plain, _ = build_from_recipe(name, device=GPU)
    recipe, captured, _ = build_from_recipe(name, device=GPU)
    captured.captured_update = CapturedUpdate(captured, messages.append)
    for number in range(4):
        _, _, examples = build_from_recipe(name, rows=3 + number)
        with_padding = recipe.task.data.pad_batch(recipe, examples)
        torch.manual_seed(number)
        expected = plain.train_step([with_padding])
        torch.manual_seed(number)
        metrics = captured.train_step([with_padding])
        assert metrics.loss == pytest.approx(expected.loss, rel=1e-4)
    assert messages == ["training steps are captured as CUDA graphs, one per batch shape"]


@pytest.mark.gpu
def test_nonfinite_captured_step_has_a_reason():
    trainer = captured_trainer(NAMES[0])
    examples = batch(store(), ROWS[0])
    for _ in range(2):
        trainer.train_step([examples])
    with torch.no_grad():
        trainer.model.decoder.output_head.projection.bias[7] = math.nan
    before = copy.deepcopy(trainer.model.state_dict())
    metrics = trainer.train_step([examples])
    assert "loss is nan" in metrics.skip_reason
    torch.testing.assert_close(trainer.model.state_dict(), before, equal_nan=True)


@pytest.mark.gpu
def test_dropout_differs_at_every_captured_step():
    trainer = captured_trainer(NAMES[0])
    trainer.learning_rate = lambda step: 0.0
    for module in trainer.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    losses = [trainer.train_step([batch(store(), ROWS[0])]).loss for _ in range(6)]
    assert len(set(losses)) == 6


@pytest.mark.gpu
def test_captured_steps_resume_where_they_were_interrupted():
    def dropping_trainer():
        trainer = captured_trainer(NAMES[0])
        for module in trainer.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.5
        return trainer

    examples = [batch(store(), ROWS[0])]
    torch.manual_seed(0)
    interrupted = dropping_trainer()
    for _ in range(3):
        interrupted.train_step(examples)
    saved = copy.deepcopy(
        (interrupted.model.state_dict(), interrupted.optimizer.state_dict(), get_rng_states())
    )
    expected = [interrupted.train_step(examples).loss for _ in range(3)]
    resumed = dropping_trainer()
    resumed.model.load_state_dict(saved[0])
    resumed.optimizer.load_state_dict(saved[1])
    resumed.step = 3
    set_rng_states(saved[2])
    losses = [resumed.train_step(examples).loss for _ in range(3)]
    assert losses == pytest.approx(expected, rel=1e-4)
