"""Tokens of small data in the run folder: a resumed run neither reads nor tokenizes the text again.

They take two bytes a token (four with more than 65,536 types) and 16 a pair. A cache is used only
if the files have the size and modification time, and the settings the values, it was made with.
Invariant: a run that uses it has the batches and the dev set of one that reads the text.
"""

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from heedful.data.sources import SourceConfig
from heedful.data.text.example_formats import ExampleSource
from heedful.data.text.pair_dataset import MixedDataset
from heedful.data.text.sharded_dataset import TOKENIZER_FOLDER
from heedful.errors import CorruptRunError, DiskFullError
from heedful.recipes import Recipe
from heedful.runs import TOKEN_CACHE, TOKEN_CACHE_KEY, Run
from heedful.storage.atomic import atomic_replace, check_free_space
from heedful.storage.manifest import folder_digest, read_and_verify_manifest, write_manifest
from heedful.tasks.task_data import TrainData
from heedful.tokenization.tokenizer_pair import tokenization_settings
from heedful.version import VERSION

_FILE = "tokens.safetensors"
_FORMAT = 1
_SIZE_TO_REPORT = 1_000_000  # bytes


class CachedTokens(NamedTuple):
    """Training data as tokens, and the dev examples that were held out; None if none were."""

    train: TrainData
    held_out: ExampleSource | None


class TokenCache:
    """The cache of a run for the sources of a recipe."""

    def __init__(self, recipe: Recipe, run: Run, sources: Sequence[SourceConfig]) -> None:
        self.folder = run.folder / TOKEN_CACHE
        self._recipe, self._run, self._sources = recipe, run, sources

    def load(self) -> CachedTokens | None:
        """Return the tokens; None if there are none, or not of this data."""
        if not (self._run.exists and self.folder.exists()):
            return None
        try:
            saved = read_and_verify_manifest(self.folder)[TOKEN_CACHE_KEY]
        except CorruptRunError:
            return None
        if saved["key"] != self._key():
            return None
        arrays, weights = load_file(self.folder / _FILE), saved["weights"]
        example_format = self._recipe.task.data.example_format
        parts = []
        for prefix in (f"{index}." for index in range(saved["num_parts"])):
            names = [name for name in arrays if name.startswith(prefix)]
            saved_part = {name.removeprefix(prefix): arrays[name] for name in names}
            parts.append(example_format.from_arrays(saved_part))
        seed = self._recipe.training.seed
        dataset = parts[0] if weights is None else MixedDataset(parts, weights, seed=seed)
        train = TrainData(dataset, saved["fingerprint"], saved["report"])
        if saved["held_out"] is None:
            return CachedTokens(train, None)
        examples, locations = saved["held_out"]
        held_out = list(map(example_format.from_json, examples))
        return CachedTokens(train, ExampleSource(held_out, locations.__getitem__))

    def save(self, tokens: CachedTokens, log: Callable[[str], None]) -> None:
        """Write the tokens, unless the data cannot be recognized later or the disk is full."""
        key, (train, held_out) = self._key(), tokens
        if key is None:
            return
        is_mixed = isinstance(train.dataset, MixedDataset)
        parts = train.dataset.datasets if is_mixed else [train.dataset]
        metadata = {
            "key": key,
            "num_parts": len(parts),
            "weights": list(train.dataset.weights) if is_mixed else None,
            "fingerprint": train.fingerprint,
            "report": list(train.report),
            "held_out": None,
        }
        if held_out is not None:
            locations = list(map(held_out.locate, range(len(held_out.examples))))
            metadata["held_out"] = held_out.examples, locations
        arrays: dict[str, NDArray[Any]] = {}
        for index, part in enumerate(parts):
            saved_part = self._recipe.task.data.example_format.to_arrays(part)
            arrays |= {f"{index}.{name}": array for name, array in saved_part.items()}
        size = sum(array.nbytes for array in arrays.values())
        try:
            with atomic_replace(self.folder) as temporary:
                temporary.mkdir()
                check_free_space(temporary, size)
                (temporary / _FILE).write_bytes(save(arrays))
                write_manifest(temporary, [temporary / _FILE], {TOKEN_CACHE_KEY: metadata})
        except DiskFullError as error:
            log(f"not saved: {error}\n  a resumed run will tokenize the data again")
            return
        if size > _SIZE_TO_REPORT:
            log(f"saved the tokens for resuming: {size / 1e6:,.0f} MB in {self.folder}")

    def _key(self) -> str | None:
        """Return a hash of all inputs of the tokens; None if a source can be read only once."""
        recipe, sources = self._recipe, self._sources
        if any(source.is_single_pass for source in sources):
            return None
        try:
            stats = [Path(path).stat() for source in sources for path in source.paths]
        except OSError:
            return None
        settings = [
            *(_FORMAT, VERSION, recipe.training.seed, recipe.data.dev is None),
            [source.model_dump(mode="json") for source in sources],
            [(stat.st_size, stat.st_mtime_ns) for stat in stats],
            tokenization_settings(recipe.tokenizers.model_dump(mode="json")),
            recipe.data.filtering.model_dump(mode="json"),
            folder_digest(self._run.folder / TOKENIZER_FOLDER),
        ]
        return blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()
