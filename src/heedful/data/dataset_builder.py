"""Building of a prepared dataset: a corpus of any size becomes a folder of token shards.

The data is read twice: a first pass checks, counts and samples it, a second tokenizes it. Finished
shards are kept: after any interruption, even a kill, the same command builds what is missing or
corrupt. Invariants: the files do not depend on interruptions or on the number of workers; no
tokens of data that changed between the passes are kept.
"""

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from heedful.config import BaseConfig, differences
from heedful.data import sharded_dataset as sharded
from heedful.data.examples import (
    CHUNK_SIZE,
    EXAMPLE_FORMATS,
    ExampleFormat,
    ExampleFormatName,
    TextChunk,
    TokenizationJob,
    TokenizedChunk,
)
from heedful.data.filtering import DuplicateFinder, FilterConfig, check_not_empty
from heedful.data.held_out import DevSplit, SideHashes, combine_sides
from heedful.data.sharded_dataset import DUPLICATES_FILE, TOKENIZER_FOLDER, shard_name, write_shard
from heedful.data.sources import SourceConfig
from heedful.errors import CorruptRunError, DataError, RunError, check
from heedful.parallel import available_cores, worker_pool
from heedful.storage.atomic import (
    atomic_replace,
    clean_up_interrupted,
    explain_os_errors,
    remove_path,
    write_text,
)
from heedful.storage.manifest import MANIFEST, read_and_verify_manifest, write_manifest
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig

SHARD_SIZE = 250_000
_DATA_SETTING = "data.train"
_TRAINING_TIME_SETTINGS = {"subword_regularization", "regularized_sides"}

ByteMask = NDArray[np.uint8]
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
    example_format: ExampleFormatName
    """Pairs of texts or lines of running text."""
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


def tokenization_settings(settings: Any) -> Any:
    """Return settings without those that act only when a batch is formed."""
    if isinstance(settings, dict):
        return {
            name: tokenization_settings(value)
            for name, value in settings.items()
            if name not in _TRAINING_TIME_SETTINGS
        }
    return list(map(tokenization_settings, settings)) if isinstance(settings, list) else settings


class ExampleBlock(NamedTuple):
    """Consecutive examples of a shard."""

    shard: int
    corpus_index: int
    first_row: int  # in the whole data
    source_row: int  # in the source
    examples: list[Any]
    texts: bytes  # the same as JSON


class ShardSpec(NamedTuple):
    """Which examples a shard contains."""

    corpus_index: int
    num_rows: int
    digest: str  # of their texts


class ShardingPlan(NamedTuple):
    """How a corpus is divided."""

    num_rows: int
    held_out: list[int]  # rows of the dev set
    left_out: list[int]  # rows that are not trained on: those and what shares a text with them
    shards: list[ShardSpec]


def iter_blocks(sources: Sequence[SourceConfig], shard_size: int) -> Iterator[ExampleBlock]:
    """Yield the examples of all sources in blocks; no shard contains two sources."""
    shard = row = 0
    for corpus_index, source in enumerate(sources):
        stream, num_in_shard, source_start = source.stream(), 0, row
        while examples := list(islice(stream, min(shard_size - num_in_shard, CHUNK_SIZE))):
            texts = json.dumps(examples, ensure_ascii=False).encode()
            yield ExampleBlock(shard, corpus_index, row, row - source_start, examples, texts)
            row += len(examples)
            num_in_shard += len(examples)
            if num_in_shard == shard_size:
                shard, num_in_shard = shard + 1, 0
        if num_in_shard:
            shard += 1


class ReservoirSampler:
    """A uniform sample of at most `size` examples of a stream (Vitter 1985)."""

    def __init__(self, size: int, *, seed: int) -> None:
        self.size = size
        self._sample: list[tuple[int, Any]] = []
        self._random = Random(seed)

    def add(self, first_row: int, examples: Sequence[Any]) -> None:
        """Add examples, of which the first is in this row."""
        for row, example in enumerate(examples, first_row):
            if row < self.size:
                self._sample.append((row, example))
            elif (slot := int(self._random.random() * (row + 1))) < self.size:
                self._sample[slot] = row, example

    def exclude_rows(self, rows: Sequence[int]) -> list[Any]:
        """Return the sample without these rows, in the order of the stream."""
        excluded = set(rows)
        sample = sorted(self._sample, key=lambda item: item[0])
        return [example for row, example in sample if row not in excluded]


class ShardCounter:
    """Counts the rows of each shard and hashes its texts."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.specs: list[ShardSpec] = []

    def add(self, block: ExampleBlock) -> None:
        """Count the examples of a block."""
        if block.shard == len(self.specs):
            self._digest = blake2b(digest_size=16)
            self.specs.append(ShardSpec(block.corpus_index, 0, ""))
        self._digest.update(block.texts)
        self.num_rows += len(block.examples)
        num_rows = self.specs[-1].num_rows + len(block.examples)
        self.specs[-1] = ShardSpec(block.corpus_index, num_rows, self._digest.hexdigest())


@dataclass(frozen=True)
class TokenizationPass:
    """The second pass: tokenizes missing shards and collects the held-out examples."""

    sources: Sequence[SourceConfig]
    plan: ShardingPlan
    missing: Collection[int]
    shard_size: int
    duplicate_mask: ByteMask
    on_progress: Callable[[int], None]
    held_out: list[tuple[str, Any]] = field(default_factory=list)  # with where each was read
    requested_shards: deque[int] = field(default_factory=deque)
    _counter: ShardCounter = field(default_factory=ShardCounter)

    def chunks(self) -> Iterator[TextChunk]:
        """Yield the chunks of missing shards, and note the shard of each in `requested_shards`."""
        for block in iter_blocks(self.sources, self.shard_size):
            self._counter.add(block)
            end = block.first_row + len(block.examples)
            held_out = rows_between(self.plan.held_out, block.first_row, end)
            left_out = rows_between(self.plan.left_out, block.first_row, end)
            locate = self.sources[block.corpus_index].locate
            self.held_out.extend(
                (locate(block.source_row + row), block.examples[row]) for row in held_out
            )
            if block.shard in self.missing:
                self.requested_shards.append(block.shard)
                duplicates = np.flatnonzero(self.duplicate_mask[block.first_row : end]).tolist()
                first_row = block.first_row - bisect_left(self.plan.left_out, block.first_row)
                source = block.corpus_index, block.source_row
                yield TextChunk(block.texts, *source, first_row, left_out, duplicates)
            self.on_progress(end)

    def verified(self, shard: int, chunks: Iterable[TokenizedChunk]) -> Iterator[TokenizedChunk]:
        """Yield the chunks of a shard; raise DataError at its end if its texts have changed."""
        yield from chunks
        self.check_unchanged(slice(shard, shard + 1))

    def check_unchanged(self, shards: slice = slice(None)) -> None:
        """Raise DataError if the data of these shards has changed since the first pass."""
        current, planned = self._counter.specs, self.plan.shards
        if current[shards] == planned[shards]:
            return
        are_equal = [spec == other for spec, other in zip(current, planned, strict=False)]
        num_equal = [*are_equal, False].index(False)
        first_row = 1 + sum(spec.num_rows for spec in planned[:num_equal])
        raise DataError(
            "; ".join(source.describe() for source in self.sources),
            f"the data has changed since it was first read, at example {first_row} or later",
            "restore it, or delete the tokens made from it and run the same command again",
        )


def rows_between(rows: Sequence[int], first: int, end: int) -> list[int]:
    """Return the sorted rows from `first` to `end`, counted from `first`."""
    return [row - first for row in rows[bisect_left(rows, first) : bisect_left(rows, end)]]


@dataclass(frozen=True)
class DatasetBuilder:
    """Builds a folder of tokens, or what is missing of it; one process per folder."""

    folder: Path
    sources: Sequence[SourceConfig]
    config: DatasetBuilderConfig
    log_message: MessageLogger
    on_progress: ProgressCallback
    tokenizers: TokenizerPair | None = None  # default: new ones, trained on a sample of the data
    source_tokenizer: Tokenizer | None = None  # default: a new one
    workers: int | None = None  # default: one per core
    replaces_other_tokens: bool = False  # made with other settings; else they are an error

    @property
    def format(self) -> ExampleFormat:
        """Pairs of texts or lines of running text."""
        return EXAMPLE_FORMATS[self.config.example_format]

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
                    finder.add(combine_sides(hashes))
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
        hashes: SideHashes = np.empty((count, 0), dtype=np.uint64)
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
            example_format=self.config.example_format,
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


def folder_digest(folder: Path) -> str:
    """Return a hash of the names and contents of the files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [[path.relative_to(folder).as_posix(), _digest(path.read_bytes())] for path in files]
    return _digest(json.dumps(named).encode())


def _digest(contents: bytes) -> str:
    return blake2b(contents, digest_size=16).hexdigest()
