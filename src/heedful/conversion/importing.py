"""A model of another library as a run folder. Invariant: nothing is written unless all fits."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from heedful.conversion.registry import read_run
from heedful.errors import RunError, check
from heedful.recipes import Recipe
from heedful.runs import Run, load
from heedful.storage.atomic import atomic_replace
from heedful.storage.state_dict import load_into_model, unique_weights
from heedful.tasks.task import VocabSizes
from heedful.tokenization.tokenizer_pair import TokenizerPair


class ImportedRun(NamedTuple):
    """All that a run folder needs."""

    recipe: Recipe
    tokenizers: TokenizerPair
    weights: Mapping[str, Tensor]
    """The parameters by our names, as `unique_weights` gives them: tied ones once."""
    notes: Sequence[str] = ()
    """What is not carried over, for the user to read."""


def build_model(recipe: Recipe, tokenizers: TokenizerPair) -> nn.Module:
    """Build the model of a recipe for these vocabularies; its parameters are random."""
    return recipe.task.build_model(recipe, VocabSizes.from_tokenizers(tokenizers)).eval()


def import_run(
    source: Path, run_dir: Path, log: Callable[[str], object] = lambda line: None
) -> Recipe:
    """Read a model, check all of it, and write it as a run; return its recipe."""
    message = "the folder exists and is not empty"
    is_free = not run_dir.exists() or (run_dir.is_dir() and not any(run_dir.iterdir()))
    check(is_free, str(run_dir), message, "name another folder with --run", RunError)
    log(f"reading {source}")
    imported = read_run(source)
    recipe, tokenizers, weights, notes = imported
    model = build_model(recipe, tokenizers)
    load_into_model(model, weights, location=str(source))
    count = sum(parameter.numel() for parameter in model.parameters())
    log(f"{recipe.info.summary or 'model'}: {count:,} parameters")
    for note in notes:
        log(f"note: {note}")
    with atomic_replace(run_dir) as temporary:
        temporary.mkdir()
        run = Run(temporary)
        run.initialize(recipe, tokenizers)
        run.save_model(unique_weights(model), step=0)
        load(temporary, device="cpu")  # as a command will; an error leaves nothing behind
    return recipe
