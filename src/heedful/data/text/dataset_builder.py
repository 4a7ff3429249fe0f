"""Building of a prepared dataset: a corpus of any size becomes a folder of token shards.

The data is read twice (`corpus_passes.py`): counted and sampled, then tokenized. Finished
shards are kept: after any interruption, even a kill, the same command builds what is missing or
corrupt. Invariants: the files do not depend on interruptions or on the number of workers; no
tokens of data that changed between the passes are kept.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import PositiveInt

from heedful.config import BaseConfig, differences
from heedful.data.sources import SourceConfig
from heedful.data.text import sharded_dataset as sharded
from heedful.data.text.corpus_passes import (
    ByteMask,
    ReservoirSampler,
    ShardCounter,
    ShardingPlan,
    ShardSpec,
    TokenizationPass,
    iter_blocks,
    rows_between,
)
from heedful.data.text.example_formats import CHUNK_SIZE, ExampleFormat, TokenizationJob
from heedful.data.text.filtering import DuplicateFinder, FilterConfig, check_not_empty
from heedful.data.text.held_out import DevSplit
from heedful.data.text.pair_dataset import TextHashes, combine_hashes
from heedful.data.text.sharded_dataset import (
    DUPLICATES_FILE,
    TOKENIZER_FOLDER,
    shard_name,
    write_shard,
)
from heedful.errors import CorruptRunError, RunError, check
from heedful.parallel import available_cores, worker_pool
from heedful.storage.atomic import (
    atomic_replace,
    clean_up_interrupted,
    explain_os_errors,
    remove_path,
    write_text,
)
from heedful.storage.manifest import (
    MANIFEST,
    folder_digest,
    read_and_verify_manifest,
    write_manifest,
)
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import (
    TokenizerPair,
    TokenizersConfig,
    tokenization_settings,
)

SHARD_SIZE = 250_000
_DATA_SETTING = "data.train"

MessageLogger = Callable[[str], None]
ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the name of the phase, the number of examples done, and the total if known."""


class DatasetBuilderConfig(BaseConfig):
    """The settings that determine the tokens."""

    sources: list[dict[str, Any]]
    """The sources of the texts, as in a recipe."""
    corpus_weights: list[float]
    """Passes over each source per epoch."""
    tokenizers: TokenizersConfig
    """How texts are tokenized."""
    example_format: str
    """The name of the format of the examples."""
    filtering: FilterConfig | None
    """Which pairs are dropped; None for running text."""
    seed: int
    """Determines the held-out examples and the sample that tokenizers train on."""
    needs_held_out: bool
    """Whether a dev set is held out."""
    max_tokenizer_lines: PositiveInt
    """Maximum number of examples that tokenizers train on."""
    shard_size: PositiveInt = SHARD_SIZE
    """Examples per shard."""

    def as_metadata(self) -> dict[str, Any]:
        """Return the settings as they are saved."""
        return tokenization_settings(self.model_dump(mode="json"))


@dataclass(frozen=True)
class DatasetBuilder:
    """Builds a folder of tokens, or its missing shards; one process per folder."""

    folder: Path
    sources: Sequence[SourceConfig]
    config: DatasetBuilderConfig
    format: ExampleFormat  # whose name the config has
    log_message: MessageLogger
    on_progress: ProgressCallback
    tokenizers: TokenizerPair | None = None  # default: new ones, trained on a sample of the data
    source_tokenizer: Tokenizer | None = None  # default: a new one
    workers: int | None = None  # default: one per core
    replaces_other_tokens: bool = False  # made with other settings; else they are an error

    def build(self) -> sharded.PreparedDataset:
        """Build all that is missing, and open the dataset."""
        with explain_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        clean_up_interrupted(self.folder)
        plan, is_complete = self._read_plan() or (self._make_plan(), False)
        missing = self._missing_shards(plan)
        if missing or not is_complete:
            self._tokenize_shards(plan, missing)
            self._write_manifest(plan, is_complete=True)
        prepared = sharded.load_prepared_dataset(self.folder, verify=False)  # verified above
        if self.config.filtering is not None:
            check_not_empty(prepared.filter_report(), location=_DATA_SETTING)
        return prepared

    def _read_plan(self) -> tuple[ShardingPlan, bool] | None:
        """Read the plan of an earlier build; return None if there is none or it is corrupt."""
        if not (self.folder / MANIFEST).exists():
            return None
        try:
            saved = read_and_verify_manifest(self.folder).get(sharded.MANIFEST_KEY, {})
        except CorruptRunError as error:
            self.log_message(f"{error.location}: {error.message}; reading the data again")
            return None
        current = self.config.as_metadata()
        if saved.get("settings") != current:
            setting, old, new = next(differences(saved.get("settings") or {}, current))
            message = f"the folder holds tokens made with {setting}={old}, but now it is {new}"
            hint = "use the settings it was started with, or name another folder"
            check(self.replaces_other_tokens, str(self.folder), message, hint, RunError)
            self.log_message(f"{self.folder}: {message}; reading the data again")
            remove_path(self.folder)
            self.folder.mkdir()
            return None
        shards = [ShardSpec(*spec) for spec in saved["shards"]]
        plan = ShardingPlan(saved["num_rows"], saved["held_out"], saved["left_out"], shards)
        return plan, saved["complete"]

    def _make_plan(self) -> ShardingPlan:
        """Read the data once: count it, choose the dev set, train tokenizers if none are given."""
        config, counter = self.config, ShardCounter()
        held_out = DevSplit(())
        sample_size = 0 if self.tokenizers else config.max_tokenizer_lines
        sampler = ReservoirSampler(sample_size, seed=config.seed)
        # The name lets `clean_up_interrupted` remove it after a kill.
        with TemporaryDirectory(prefix=".writing-", dir=self.folder) as temporary:
            hash_file, folder = Path(temporary) / "sides", Path(temporary) / "pairs"
            folder.mkdir()
            finder = DuplicateFinder(folder) if config.filtering else None
            for block in iter_blocks(self.sources, config.shard_size):
                counter.add(block)
                sampler.add(block.first_row, block.examples)
                hashes = self.format.hash(block.examples)
                with explain_os_errors(hash_file), hash_file.open("ab") as file:
                    file.write(hashes.tobytes() if config.needs_held_out else b"")
                if finder is not None:
                    finder.add(combine_hashes(hashes))
                self.on_progress("reading", counter.num_rows, None)
            if config.needs_held_out:
                held_out = self._choose_held_out(hash_file, counter.num_rows)
            if finder is not None:
                with atomic_replace(self.folder / DUPLICATES_FILE) as path:
                    finder.write_duplicate_mask(path, held_out.all_rows)
        tokenizers = self.tokenizers
        if tokenizers is None:
            sample = sampler.exclude_rows(held_out.all_rows)
            total = f"{counter.num_rows} {self.format.name}"
            self.log_message(f"training the tokenizers on {len(sample)} of {total}")
            self.on_progress("training the tokenizers", 0, None)
            texts = self.format.tokenizer_texts(sample)
            tokenizers = config.tokenizers.train(*texts, self.source_tokenizer)
        with atomic_replace(self.folder / TOKENIZER_FOLDER) as path:
            path.mkdir()
            tokenizers.save(path)
        rows, left_out = list(held_out.rows), held_out.all_rows
        plan = ShardingPlan(counter.num_rows, rows, left_out, counter.specs)
        self._write_manifest(plan, is_complete=False)
        return plan

    def _choose_held_out(self, hash_file: Path, count: int) -> DevSplit:
        hashes: TextHashes = np.empty((count, 0), dtype=np.uint64)
        if hash_file.stat().st_size:
            hashes = np.memmap(hash_file, np.uint64, "r").reshape(count, -1)
        location = "; ".join(source.describe() for source in self.sources)
        held_out = self.format.choose_held_out(hashes, seed=self.config.seed, location=location)
        if held_out.note:
            self.log_message(held_out.note)
        return held_out

    def _missing_shards(self, plan: ShardingPlan) -> dict[int, str]:
        """Return the shards to build, with hashes of everything that determines their contents."""
        filtering = self.config.as_metadata()["filtering"]
        common = [sharded.FORMAT, filtering, folder_digest(self.folder / TOKENIZER_FOLDER)]
        mask, first_row = self._duplicate_mask(), 0
        keys: list[str] = []
        for index, spec in enumerate(plan.shards):
            end = first_row + spec.num_rows
            left_out = rows_between(plan.left_out, first_row, end)
            duplicates = _digest(mask[first_row:end].tobytes())
            contents = [index == 0, *spec, left_out, duplicates]
            keys.append(_digest(json.dumps([common, contents]).encode()))
            first_row = end
        folders = [self.folder / shard_name(index) for index in range(len(keys))]
        saved_keys = sharded.map_in_threads(_read_shard_key, folders)
        for folder, key in zip(folders, saved_keys, strict=True):
            if isinstance(key, CorruptRunError):
                self.log_message(f"{key.location}: {key.message}; rebuilding {folder.name}")
        return {index: key for index, key in enumerate(keys) if saved_keys[index] != key}

    def _duplicate_mask(self) -> ByteMask:
        path = self.folder / DUPLICATES_FILE
        return np.memmap(path, np.uint8, "r") if path.exists() else np.empty(0, np.uint8)

    def _tokenize_shards(self, plan: ShardingPlan, missing: dict[int, str]) -> None:
        """Read the data again and build the missing shards."""
        job = TokenizationJob(
            tokenizers=self.config.tokenizers,
            folder=self.folder / TOKENIZER_FOLDER,
            example_format=self.format,
            filtering=self.config.filtering,
            sources=self.sources,
        )
        second_pass = TokenizationPass(
            *(self.sources, plan, missing, self.config.shard_size, self._duplicate_mask()),
            on_progress=lambda done: self.on_progress("tokenizing", done, plan.num_rows),
        )
        num_rows = sum(plan.shards[index].num_rows for index in missing)
        num_workers = max(1, min(self.workers or available_cores(), num_rows // CHUNK_SIZE))
        with worker_pool(job, num_workers=num_workers) as tokenize:
            tokenized = tokenize(second_pass.chunks())
            requested = second_pass.requested_shards  # in the order in which chunks come back
            for index, group in groupby(tokenized, lambda _: requested.popleft()):
                folder, chunks = self.folder / shard_name(index), second_pass.verified(index, group)
                metadata = {"corpus_index": plan.shards[index].corpus_index, "key": missing[index]}
                prefix = self.format.prefix_tokens if index == 0 else ()
                write_shard(folder, chunks, metadata, prefix)
        second_pass.check_unchanged()
        if plan.held_out:
            lines = [json.dumps(located, ensure_ascii=False) for located in second_pass.held_out]
            write_text(self.folder / sharded.HELD_OUT_FILE, "\n".join([*lines, ""]))

    def _write_manifest(self, plan: ShardingPlan, *, is_complete: bool) -> None:
        files = [path for path in (self.folder / TOKENIZER_FOLDER).rglob("*") if path.is_file()]
        names = [DUPLICATES_FILE]
        if is_complete:
            shards = (f"{shard_name(index)}/{MANIFEST}" for index in range(len(plan.shards)))
            names += [sharded.HELD_OUT_FILE, *shards]
        files += [path for name in names if (path := self.folder / name).exists()]
        settings = self.config.as_metadata()
        prepared = {"format": sharded.FORMAT, "complete": is_complete, "settings": settings}
        write_manifest(self.folder, files, {sharded.MANIFEST_KEY: {**prepared, **plan._asdict()}})


def _read_shard_key(folder: Path) -> str | CorruptRunError | None:
    """Return the key of a shard, None if there is no shard, or the error if it is corrupt."""
    if not folder.exists():
        return None
    try:
        return read_and_verify_manifest(folder)[sharded.METADATA_KEY]["key"]
    except CorruptRunError as error:
        return error


def _digest(contents: bytes) -> str:
    return blake2b(contents, digest_size=16).hexdigest()
