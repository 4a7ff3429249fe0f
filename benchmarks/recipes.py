"""What does each small recipe cost: weights, tokens a second, operations for a token?

Prints a line for each recipe whose name ends in -small. Tokens a second are real tokens of both
sides, learned from on this machine by batches of the recipe's own corpus. Operations are additions
and multiplications, forwards and backwards, for one target token: those of products, attention,
convolutions and recurrences. What is done element by element, gates and the tanh of an additive
score among it, is left out, and so is the optimizer.
"""

import argparse
import os
import time
from functools import cache
from itertools import islice

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import nn

from heedful.data.collate import Batch, collate
from heedful.data.prepare import epoch_shapes, tokenise
from heedful.data.records import Pair
from heedful.data.sources import BuiltInConfig
from heedful.evaluation.operations import counting_operations
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.text.config import SeparateTexts, TextPair
from heedful.training.engine import Learner
from heedful.training.objectives import Loss, negative_log_likelihood

STEPS = 12
WARMUP = 2
PAIRS = 4000  # enough for these steps


def loss(model: nn.Module, batch: Batch) -> Loss:
    told = model(batch)
    return Loss(negative_log_likelihood(told.log_probs, batch.targets), told.penalties)


@cache
def words(data: BuiltInConfig, text: SeparateTexts) -> tuple[list[Pair], TextPair]:
    """Some pairs of a corpus, and the vocabulary of all of it; most recipes share theirs."""
    pairs = data.read()
    return pairs[:PAIRS], text.train(*zip(*pairs, strict=True))


def prepared(recipe: Recipe, name: str) -> tuple[nn.Module, list[Batch]]:
    """The model of a recipe, and batches as it would learn from."""
    assert isinstance(recipe.data.train, BuiltInConfig)
    assert isinstance(recipe.text, SeparateTexts)
    pairs, text = words(recipe.data.train, recipe.text)
    store, _ = tokenise(pairs, text, recipe.data.selection, at=name)
    shapes = islice(epoch_shapes(store, recipe.training.batching, seed=0, epoch=0), WARMUP + STEPS)
    model = recipe.model.build(source_size=len(text.source), target_size=len(text.target))
    return model, [collate(store, shape) for shape in shapes]


def speed(recipe: Recipe, model: nn.Module, batches: list[Batch]) -> float:
    """Tokens a second in training."""
    optimizer = recipe.training.optimizer.build(model)
    learner = Learner(model, loss, optimizer, recipe.training.learning_rate, max_grad_norm=1.0)
    for batch in batches[:WARMUP]:
        learner.update([batch])
    began = time.perf_counter()
    learned = sum(learner.update([batch]).num_tokens for batch in batches[WARMUP:])
    return learned / (time.perf_counter() - began)


def operations(model: nn.Module, batch: Batch) -> float:
    """Operations for each real target token of a batch."""
    with counting_operations() as counted:
        error, penalties = loss(model, batch)
        sum(penalties.values(), start=error).backward()
    model.zero_grad()
    return counted.total / batch.num_targets


def bench(name: str) -> None:
    recipe = load_recipe(name)
    torch.manual_seed(0)
    model, batches = prepared(recipe, name)
    weights = sum(weight.numel() for weight in model.parameters())
    cost = operations(model, batches[0])
    taken = speed(recipe, model, batches)
    print(f"{name:<28}{weights:>11,}{taken:>12,.0f}{cost / 1e6:>14.2f}")


def main() -> None:
    names = [name for name in recipe_names() if name.endswith("-small")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", choices=names, help="this recipe and no other")
    only = parser.parse_args().only
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    print(f"{'recipe':<28}{'weights':>11}{'tokens/s':>12}{'MFLOPs/token':>14}")
    for name in [only] if only else names:
        bench(name)
    print("MFLOPs/token: operations forwards and backwards for one target token, those for source")
    print("and padding included; work done element by element and the optimizer are left out")


if __name__ == "__main__":
    main()
