"""Model, objective and optimizer of a recipe as a `Trainer`.

Invariant: every rank starts from the same parameters, and draws its own dropout.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from heedful.errors import check
from heedful.experiment.environment import configure_backends, free_memory
from heedful.recipes import Recipe
from heedful.tasks.task_data import DataModule, VocabSizes
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext
from heedful.training.step_capture import capture_steps
from heedful.training.trainer import GradientClipper, MixedPrecision, Trainer, choose_precision


def build_model(
    recipe: Recipe,
    sizes: VocabSizes,
    *,
    data_module: DataModule | None = None,
    device: torch.device,
) -> nn.Module:
    """Build the model, whose initial parameters depend on `training.seed` alone."""
    configure_backends(device)
    check_memory(recipe, sizes, device)
    torch.manual_seed(recipe.training.seed)
    model = recipe.task.build_model(recipe, sizes)
    if data_module is not None:
        recipe.task.initialize_model(model, data_module)
    return model.to(device)


def build_trainer(
    recipe: Recipe,
    model: nn.Module,
    learning_rate: Callable[[int], float],
    *,
    data_module: DataModule | None = None,
    log: Callable[[str], None] = lambda line: None,
    dist_context: DistributedContext = SINGLE_PROCESS,
    device: torch.device,
) -> Trainer:
    """Build the objective and the optimizer of a model, and shard it if need be.

    The objective may depend on the training data: guided alignment has links of its pairs, a
    reward the references of its sources.
    """
    config, task = recipe.training, recipe.task
    is_supported = not dist_context.is_sharded or config.objective.type == "cross-entropy"
    name = f"the objective {config.objective.type!r} decodes at every step"
    message = f"{name}, which would gather all sharded parameters each time"
    hint = "set training.distributed_strategy=ddp"
    check(is_supported, "training.distributed_strategy", message, hint)
    objective = task.build_objective(config)
    task.add_training_data(objective, config, data_module, log)
    model = dist_context.prepare_model(model)
    torch.manual_seed(config.seed + dist_context.rank)
    precision = config.precision or choose_precision(task.gpu_precision, device)
    trainer = Trainer(
        model,
        objective,
        dist_context.shard_optimizer(config.optimizer.build(model)),
        learning_rate,
        clipping=GradientClipper(config.max_grad_norm, config.max_grad_value),
        precision=MixedPrecision(precision, device.type),
        ema=config.ema.build(model) if config.ema else None,
        dist_context=dist_context,
        device=device,
    )
    if config.cuda_graphs and device.type == "cuda":
        capture_steps(trainer, config, partial(task.data.pad_batch, recipe), log)
    return trainer


def check_memory(recipe: Recipe, sizes: VocabSizes, device: torch.device) -> None:
    """Raise ConfigError if parameters and gradients exceed the memory: the kernel would kill us."""
    with torch.device("meta"):
        parameters = list(recipe.task.build_model(recipe, sizes).parameters())
    num_parameters = sum(parameter.numel() for parameter in parameters)
    needed, free = 8 * num_parameters / 1e9, free_memory() / 1e9  # two fp32 numbers for each
    contents = f"{num_parameters:,} parameters with their gradients"
    message = f"{contents} need {needed:,.1f} GB of memory, and {free:,.1f} GB are free"
    check(device.type != "cpu" or needed <= free, "model", message, "lower its sizes")
