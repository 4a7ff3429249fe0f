"""Datasets: what do all runs of a comparison learn from?

Named by a word: a built-in corpus, a recipe whose data it is, or a folder of files. What a recipe
says of its own data is replaced by this, but for how running text is read, which belongs to the
model. Text is cut as the dataset's recipe says, where that says it, and else as each recipe does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.config import Settings
from heedful.data.synthetic import CORPORA
from heedful.errors import ConfigError, choose_from, did_you_mean
from heedful.recipes import Recipe, load_recipe, recipe_names

SIZES = {"train": 100_000, "dev": 500, "test": 1000}
"""How many pairs, or lines, of a built-in corpus."""
ENDINGS = ("", ".gz", ".xz")
SIDES = (("source", "target"), ("src", "tgt"))


class Dataset(NamedTuple):
    """What is learned from, validated on and tested on."""

    data: Settings
    text: Settings | None = None  # how it is cut; None leaves that to each recipe

    def overrides(self, recipe: Recipe) -> list[str]:
        """Say it as overrides of a recipe."""
        streams = recipe.data.streams.model_dump(mode="json")
        changes = [f"data={json.dumps({'streams': streams, **self.data})}"]
        return changes if self.text is None else [*changes, f"text={json.dumps(self.text)}"]


def find_dataset(name: str, *, is_of_text: bool) -> Dataset:
    """Find the dataset of a name, as pairs or as running text."""
    if name in CORPORA:
        return Dataset({split: _built_in(name, split, is_of_text) for split in SIZES})
    if Path(name).is_dir():
        return Dataset(_in_folder(Path(name), is_of_text=is_of_text))
    if name in recipe_names() or name.endswith((".yaml", ".yml")):
        return _of_recipe(name)
    known = [*CORPORA, *recipe_names()]
    raise ConfigError(
        f"--data {name}",
        f"no data is called so{did_you_mean(name, known)}",
        f"{choose_from(CORPORA)}; or give a recipe with data, a .yaml file or a folder",
    )


def _built_in(name: str, split: str, is_of_text: bool) -> Settings:
    kind = "built-in-text" if is_of_text else "built-in"
    return {"kind": kind, "name": name, "split": split, "size": SIZES[split]}


def _of_recipe(name: str) -> Dataset:
    recipe = load_recipe(name)
    if recipe.data.train is None:
        raise ConfigError(
            f"--data {name}",
            "this recipe does not say what to learn from",
            "name one with `data.train`, a built-in corpus or a folder",
        )
    settings = recipe.model_dump(mode="json")
    data: dict[str, Any] = settings["data"]
    if "streams" not in recipe.data.model_fields_set:
        del data["streams"]
    return Dataset(data, settings["text"] if "text" in recipe.model_fields_set else None)


def _in_folder(folder: Path, *, is_of_text: bool) -> Settings:
    found = {split: _files(folder, split, is_of_text=is_of_text) for split in SIZES}
    if found["train"] is None:
        wanted = "train.txt" if is_of_text else "train.source and train.target, or train.tsv"
        raise ConfigError(
            f"--data {folder}",
            f"the folder does not hold {wanted}",
            "name its files so, or write a .yaml file with a `data` section",
        )
    return {split: source for split, source in found.items() if source is not None}


def _files(folder: Path, split: str, *, is_of_text: bool) -> Settings | None:
    if is_of_text:
        text = _first(folder, [f"{split}.txt"])
        return {"kind": "text", "path": text[0]} if text else None
    for source, target in SIDES:
        if pair := _first(folder, [f"{split}.{source}", f"{split}.{target}"]):
            return {"kind": "files", "source": pair[0], "target": pair[1]}
    for kind in ("tsv", "jsonl"):
        if table := _first(folder, [f"{split}.{kind}"]):
            return {"kind": kind, "path": table[0]}
    return None


def _first(folder: Path, names: Sequence[str]) -> list[str]:
    """The paths of files of these names, all with the same ending; nothing if one is missing."""
    for ending in ENDINGS:
        paths = [folder / f"{name}{ending}" for name in names]
        if all(path.is_file() for path in paths):
            return [str(path) for path in paths]
    return []
