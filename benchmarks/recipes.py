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

from heedful.corpora import Corpora, read_corpora
from heedful.data.prepare import Position
from heedful.evaluation.operations import counting_operations
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.runs import Run
from heedful.training.engine import Learner
from heedful.training.objectives import Likelihood, Loss, negative_log_likelihood

STEPS = 12
WARMUP = 2
CORPORA: dict[Any, Corpora] = {}


def loss(model: nn.Module, batch: Any) -> Loss:
    told = model(batch, need_weights=False)
    return Loss(negative_log_likelihood(told.log_probs, batch.targets), told.penalties)


def prepared(recipe: Recipe) -> tuple[nn.Module, list[Any]]:
    """The model of a recipe, and batches as it would learn from."""
    key = (recipe.data, recipe.text, recipe.training.batching, recipe.model.kind)
    if key not in CORPORA:  # most recipes share theirs
        with TemporaryDirectory() as folder:
            CORPORA[key] = read_corpora(recipe, Run(folder), Console(quiet=True))
    corpora = CORPORA[key]
    sizes = {"source_size": len(corpora.text.source), "target_size": len(corpora.text.target)}
    batches = islice(corpora.stream(Position(0, 0)), WARMUP + STEPS)
    return recipe.model.build(**sizes), list(batches)


def speed(recipe: Recipe, model: nn.Module, batches: list[Any]) -> float:
    """Tokens a second in training."""
    optimizer = recipe.training.optimizer.build(model)
    learner = Learner(model, Likelihood(), optimizer, recipe.training.learning_rate)
    for batch in batches[:WARMUP]:
        learner.update([batch])
    began = time.perf_counter()
    learned = sum(learner.update([batch]).num_tokens for batch in batches[WARMUP:])
    return learned / (time.perf_counter() - began)


def operations(model: nn.Module, batch: Any) -> float:
    """Operations for each real target token of a batch."""
    with counting_operations() as counted:
        error, penalties = loss(model, batch)
        sum(penalties.values(), start=error).backward()
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
    only = parser.parse_args().only
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    print(f"{'recipe':<32}{'weights':>11}{'tokens/s':>12}{'MFLOPs/token':>14}")
    for name in [only] if only else names:
        bench(name)
    print("MFLOPs/token: operations forwards and backwards for one target token, those for source")
    print("and padding included; work done element by element and the optimizer are left out")


if __name__ == "__main__":
    main()
