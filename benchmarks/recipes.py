"""What does each small recipe cost: weights, tokens a second, operations for a token?

Prints a line for each recipe that brings its corpus. Tokens a second are real tokens of both
sides, learned from on this machine by batches of the recipe's own corpus. Operations are additions
and multiplications, forwards and backwards, for one target token: those of products, attention,
convolutions and recurrences. What is done element by element, gates and the tanh of an additive
score among it, is left out, and so is the optimizer.
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

from heedful.data.batch_stream import DataCursor
from heedful.experiment import DataModule, load_data
from heedful.experiment.flops import count_flops
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.runs import Run
from heedful.training import CrossEntropyObjective, LossTerms, negative_log_likelihood
from heedful.training.trainer import Trainer

STEPS = 12
WARMUP = 2
CORPORA: dict[Any, DataModule] = {}


def loss(model: nn.Module, batch: Any) -> LossTerms:
    told = model(batch, need_weights=False)
    return LossTerms(negative_log_likelihood(told.log_probs, batch.targets), told.auxiliary_losses)


def prepared(recipe: Recipe) -> tuple[nn.Module, list[Any]]:
    """The model of a recipe, and batches as it would learn from."""
    key = (recipe.data, recipe.tokenizers, recipe.training.batching, recipe.model.type)
    if key not in CORPORA:  # most recipes share theirs
        with TemporaryDirectory() as folder:
            CORPORA[key] = load_data(recipe, Run(folder), Console(quiet=True))
    corpora = CORPORA[key]
    sizes = {
        "source_vocab_size": len(corpora.tokenizers.source),
        "target_vocab_size": len(corpora.tokenizers.target),
    }
    batches = islice(corpora.train_batches(DataCursor(0, 0)), WARMUP + STEPS)
    return recipe.model.build(**sizes), list(batches)


def speed(recipe: Recipe, model: nn.Module, batches: list[Any]) -> float:
    """Tokens a second in training."""
    optimizer = recipe.training.optimizer.build(model)
    learner = Trainer(model, CrossEntropyObjective(), optimizer, recipe.training.learning_rate)
    for batch in batches[:WARMUP]:
        learner.train_step([batch])
    began = time.perf_counter()
    learned = sum(learner.train_step([batch]).num_tokens for batch in batches[WARMUP:])
    return learned / (time.perf_counter() - began)


def operations(model: nn.Module, batch: Any) -> float:
    """Operations for each real target token of a batch."""
    with count_flops() as counted:
        error, auxiliary_losses = loss(model, batch)
        sum(auxiliary_losses.values(), start=error).backward()
    model.zero_grad()
    return counted.total / batch.num_targets


def bench(name: str) -> None:
    recipe = load_recipe(name)
    torch.manual_seed(0)
    model, batches = prepared(recipe)
    weights = sum(weight.numel() for weight in model.parameters())
    cost = operations(model, batches[0])
    taken = speed(recipe, model, batches)
    print(f"{name:<32}{weights:>11,}{taken:>12,.0f}{cost / 1e6:>14.2f}")


def main() -> None:
    names = [
        name
        for name in recipe_names()
        if name.endswith(("-small", "-tiny")) and load_recipe(name).data.train is not None
    ]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", choices=names, help="this recipe and no other")
    select_beams = parser.parse_args().select_beams
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    print(f"{'recipe':<32}{'weights':>11}{'tokens/s':>12}{'MFLOPs/token':>14}")
    for name in [select_beams] if select_beams else names:
        bench(name)
    print("MFLOPs/token: operations forwards and backwards for one target token, those for source")
    print("and padding included; work done element by element and the optimizer are left out")


if __name__ == "__main__":
    main()
