"""A model of another library, or one that heedful exported, as a run folder.

An exported folder also has the recipe and the tokenizers of its run. Invariants: nothing is written
unless all fits; heedful -> other library -> heedful is equal, bit for bit.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from heedful.config import read_settings, to_yaml, validate_settings
from heedful.conversion.exporting import TOKENIZERS
from heedful.conversion.interface import ImportedRun, build_model, expected_weights
from heedful.conversion.registry import read_run
from heedful.conversion.tensor_names import TensorTable
from heedful.errors import DataError, RunError, check
from heedful.recipes import Recipe
from heedful.runs import Run, load
from heedful.storage.atomic import atomic_replace
from heedful.storage.state_dict import load_into_model, unique_weights
from heedful.tasks.prediction import LoadedRun

RECIPE_FILE = "heedful.yaml"


def import_run(
    source: Path, run_dir: Path, log: Callable[[str], object] = lambda line: None
) -> Recipe:
    """Read a model, check all of it, and write it as a run; return its recipe."""
    message = "the folder exists and is not empty"
    is_free = not run_dir.exists() or (run_dir.is_dir() and not any(run_dir.iterdir()))
    check(is_free, str(run_dir), message, "name another folder with --run", RunError)
    log(f"reading {source}")
    imported = read_run(source)
    recipe, tokenizers, weights, notes, original_files = imported
    model = build_model(recipe, tokenizers)
    load_into_model(model, weights, location=str(source))
    count = sum(parameter.numel() for parameter in model.parameters())
    log(f"{recipe.info.summary or 'model'}: {count:,} parameters")
    for note in notes:
        log(f"note: {note}")
    with atomic_replace(run_dir) as temporary:
        temporary.mkdir()
        run = Run(temporary)
        run.initialize(recipe, tokenizers, original_files)
        run.save_model(unique_weights(model), step=0)
        load(temporary, device="cpu")  # as a command will; an error leaves nothing behind
    return recipe


def write_run_files(run: LoadedRun, folder: Path) -> None:
    """Write recipe and tokenizers of a run into an exported folder."""
    (folder / RECIPE_FILE).write_text(to_yaml(run.config), encoding="utf-8")
    (folder / TOKENIZERS).mkdir()
    run.tokenizers.save(folder / TOKENIZERS)


def has_run_files(folder: Path) -> bool:
    """Whether a folder was exported by heedful."""
    return (folder / RECIPE_FILE).is_file()


def read_exported_run(
    folder: Path, tensors: Mapping[str, Tensor], table_of_sizes: Callable[[int, int], TensorTable]
) -> ImportedRun:
    """Return the run that a folder was exported from, with the tensors of the folder.

    Biases that the run does not have must still be zero.
    """
    path = folder / RECIPE_FILE
    recipe = validate_settings(Recipe, read_settings(path), location=str(path))
    tokenizers = recipe.tokenizers.load(folder / TOKENIZERS)
    expected = expected_weights(recipe, tokenizers, tensors, location=str(folder))
    table = table_of_sizes(len(tokenizers.source), len(tokenizers.target))
    added = set(tensors) - set(table.foreign_names(expected).values())
    message = "was changed after the export: a bias that the run does not have is not zero"
    hint = f"remove {RECIPE_FILE} from it, to import it with the files of transformers"
    for name in added:
        is_zero = not name.endswith("bias") or not tensors[name].any()
        check(is_zero, str(folder), f"the tensor {name} {message}", hint, DataError)
    weights = table.import_tensors(tensors, expected, location=str(folder), ignored=[".*"])
    return ImportedRun(recipe, tokenizers, weights)
