"""Recipe and tokenizers of a run inside an exported folder, so that importing gives the run again.

Invariant: heedful -> other library -> heedful is equal, bit for bit.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import read_settings, to_yaml, validate_settings
from heedful.conversion.importing import ImportedRun, build_model
from heedful.conversion.model_card import TOKENIZERS
from heedful.conversion.tensor_names import TensorTable
from heedful.errors import DataError, check
from heedful.recipes import Recipe
from heedful.storage.state_dict import unique_weights
from heedful.tasks.task import LoadedRun

RECIPE_FILE = "heedful.yaml"


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
    with torch.device("meta"):
        expected = unique_weights(build_model(recipe, tokenizers))
    table = table_of_sizes(len(tokenizers.source), len(tokenizers.target))
    added = set(tensors) - set(table.their_names(expected).values())
    message = "was changed after the export: a bias that the run does not have is not zero"
    hint = f"remove {RECIPE_FILE} from it, to import it with the files of transformers"
    for name in added:
        is_zero = not name.endswith("bias") or not tensors[name].any()
        check(is_zero, str(folder), f"the tensor {name} {message}", hint, DataError)
    weights = table.to_ours(tensors, expected, location=str(folder), ignored=[".*"])
    return ImportedRun(recipe, tokenizers, weights)
