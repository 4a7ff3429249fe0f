"""Parameters, training speed and FLOPs of each small recipe.

Prints a line for each recipe with a synthetic corpus. Tokens per second count the tokens of both
sides without padding, in training on this machine with batches of the recipe's corpus. FLOPs are
those of matrix products, attention, convolutions and recurrences, forward and backward, per target
token; elementwise operations and the optimizer are not counted.
"""

import argparse
import os
import time
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from rich.console import Console
from torch import nn

from benchmarks.harness import Table, describe_machine
from heedful.data.shuffling import DataCursor
from heedful.experiment import load_data
from heedful.experiment.flops import FlopCounter
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.runs import Run
from heedful.tasks.task_data import DataModule
from heedful.training.objectives import CrossEntropyObjective, LossTerms, negative_log_likelihood
from heedful.training.trainer import Trainer

STEPS = 12
WARMUP = 2
DATA_MODULES: dict[Any, DataModule] = {}


def loss(model: nn.Module, batch: Any) -> LossTerms:
    output = model(batch, need_weights=False)
    return LossTerms(
        negative_log_likelihood(output.log_probs, batch.targets), output.auxiliary_losses
    )


def build_model_and_batches(recipe: Recipe) -> tuple[nn.Module, list[Any]]:
    """Return the model of a recipe and its first batches."""
    key = (recipe.data, recipe.tokenizers, recipe.training.batching, recipe.model.type)
    if key not in DATA_MODULES:  # most recipes share one
        with TemporaryDirectory() as folder:
            DATA_MODULES[key] = load_data(recipe, Run(folder), Console(quiet=True))
    data_module = DATA_MODULES[key]
    sizes = {
        "source_vocab_size": len(data_module.tokenizers.source),
        "target_vocab_size": len(data_module.tokenizers.target),
    }
    batches = islice(data_module.train_batches(DataCursor(0, 0)), WARMUP + STEPS)
    return recipe.model.build(**sizes), list(batches)


def speed(recipe: Recipe, model: nn.Module, batches: list[Any]) -> float:
    """Return tokens per second in training."""
    config = recipe.training.optimizer
    trainer = Trainer(
        model, CrossEntropyObjective(), config.build(model), lambda step: config.learning_rate
    )
    for batch in batches[:WARMUP]:
        trainer.train_step([batch])
    start = time.perf_counter()
    num_tokens = sum(trainer.train_step([batch]).num_tokens for batch in batches[WARMUP:])
    return num_tokens / (time.perf_counter() - start)


def flops_per_target(model: nn.Module, batch: Any) -> float:
    """Return the FLOPs per target token of a batch."""
    with FlopCounter() as counted:
        main_loss, auxiliary_losses = loss(model, batch)
        sum(auxiliary_losses.values(), start=main_loss).backward()
    model.zero_grad()
    return counted.total / batch.num_targets


def bench(name: str, table: Table) -> None:
    recipe = load_recipe(name)
    torch.manual_seed(0)
    model, batches = build_model_and_batches(recipe)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    cost = flops_per_target(model, batches[0])
    taken = speed(recipe, model, batches)
    table.add(name, f"{num_parameters:,}", f"{taken:,.0f}", f"{cost / 1e6:.2f}")


def main() -> None:
    names = [
        name
        for name in recipe_names()
        if name.endswith(("-small", "-tiny")) and load_recipe(name).data.train is not None
    ]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", choices=names, help="this recipe and no other")
    only = parser.parse_args().only
    print(f"{describe_machine()}; fp32")
    table = Table("recipe", "parameters", "tokens/s", "MFLOPs/token")
    for name in [only] if only else names:
        bench(name, table)
    print("MFLOPs/token: forward and backward per target token, including source and padding;")
    print("elementwise operations and the optimizer are not counted")


if __name__ == "__main__":
    main()
