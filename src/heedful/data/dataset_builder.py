"""Building: how does a corpus of any size become a folder of tokens?

The data is gone through once to be checked, counted and learned from, and once to be cut, shard
by shard. What is finished stays: after any interruption, even a kill, the same command makes what
is missing or damaged, and the same tokens come out, whoever cut them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from heedful.config import BaseConfig
from heedful.data.batch_stream import choose_held_out_rows
from heedful.data.chunk_tokenizer import CHUNK_SIZE, TextChunk, TokenizationJob, TokenizedChunk
from heedful.data.filtering import DuplicateFinder, FilterConfig, check_not_empty, hash_pairs
from heedful.data.sharded_dataset import (
    DUPLICATES_FILE,
    FORMAT,
    HELD_OUT_FILE,
    MANIFEST_KEY,
    METADATA_KEY,
    TOKENIZER_FOLDER,
    ExampleBlock,
    ExampleSource,
    PreparedDataset,
    ReservoirSampler,
    ShardCounter,
    ShardSpec,
    iter_blocks,
    load_prepared_dataset,
    map_in_threads,
    shard_name,
    write_shard,
)
from heedful.data.token_stream import choose_held_out_lines
from heedful.data.tokenization_pool import available_cores, tokenization_pool
from heedful.errors import CorruptRunError, DataError, RunError
from heedful.storage import (
    MANIFEST,
    atomic_replace,
    clean_up_interrupted,
    explain_os_errors,
    read_and_verify_manifest,
    write_manifest,
    write_text,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig
from heedful.tokenization.vocabulary import EOS

# Passing: the second time that data is gone through, to be cut.
#
# It must be what it was the first time: whatever has changed in between is refused before any
# tokens of it take their place.

ByteMask = NDArray[np.uint8]


class ShardingPlan(NamedTuple):
    """What a corpus will be cut into."""

    num_rows: int  # pairs or lines
    held_out: list[int]  # which of them are only validated on
    shards: list[ShardSpec]


class TokenizationPass:
    """Goes through the data and has some of its shards cut."""

    def __init__(
        self,
        sources: Sequence[ExampleSource],
        plan: ShardingPlan,
        missing: Collection[int],
        *,
        shard_size: int,
        duplicate_mask: ByteMask,
        on_progress: Callable[[int], None],
    ) -> None:
        self.held_out = list[Any]()
        self._sources = sources
        self._plan = plan
        self._missing = missing
        self._shard_size = shard_size
        self._duplicate_mask = duplicate_mask
        self._on_progress = on_progress
        self._tally = ShardCounter()
        self._requested_shards = deque[int]()

    def tokenize_with(
        self, tokenize: Callable[[Iterable[TextChunk]], Iterator[TokenizedChunk]]
    ) -> Iterator[tuple[int, TokenizedChunk]]:
        """Have what is missing cut, and say of each cut which shard it is of."""
        for each in tokenize(self._chunks()):
            yield self._requested_shards.popleft(), each

    def _chunks(self) -> Iterator[TextChunk]:
        for stretch in iter_blocks(self._sources, self._shard_size):
            self._tally.add(stretch)
            end = stretch.first_row + len(stretch.examples)
            rows = rows_between(self._plan.held_out, stretch.first_row, end)
            self.held_out += [stretch.examples[row] for row in rows]
            if stretch.shard in self._missing:
                self._requested_shards.append(stretch.shard)
                yield self._make_chunk(stretch, rows)
            self._on_progress(end)

    def _make_chunk(self, block: ExampleBlock, held_out: list[int]) -> TextChunk:
        end = block.first_row + len(block.examples)
        repeated = np.flatnonzero(self._duplicate_mask[block.first_row : end]).tolist()
        learned_before = block.first_row - bisect_left(self._plan.held_out, block.first_row)
        return TextChunk(block.texts, learned_before, held_out, repeated)

    def verify_unchanged(
        self, shard: int, tokenized_chunks: Iterable[TokenizedChunk]
    ) -> Iterator[TokenizedChunk]:
        """Give the cuts of a shard, and refuse it in the end if its texts were not as before."""
        yield from tokenized_chunks
        if self._tally.specs[shard : shard + 1] != self._plan.shards[shard : shard + 1]:
            raise self._data_changed_error()

    def check_all_unchanged(self) -> None:
        """Refuse data that is not what it was when it was first read."""
        if self._tally.specs != self._plan.shards:
            raise self._data_changed_error()

    def _data_changed_error(self) -> DataError:
        both = zip(self._tally.specs, self._plan.shards, strict=False)
        differing = (number for number, (now, then) in enumerate(both) if now != then)
        same = next(differing, min(len(self._tally.specs), len(self._plan.shards)))
        first = 1 + sum(shard.num_rows for shard in self._plan.shards[:same])
        return DataError(
            "; ".join(source.describe() for source in self._sources),
            f"the data has changed since it was first read, at number {first} or after it",
            "put it back, or delete what was made of it and give the same command again",
        )


def rows_between(rows: Sequence[int], first: int, end: int) -> list[int]:
    """Of sorted rows those from `first` to `end`, counted from `first`."""
    return [row - first for row in rows[bisect_left(rows, first) : bisect_left(rows, end)]]


SHARD_SIZE = 250_000
_DATA_SETTING = "data.train"
_TRAINING_TIME_SETTINGS = {"subword_regularization", "regularized_sides"}

MessageLogger = Callable[[str], None]
ProgressCallback = Callable[[str, int, int | None], None]
"""Is told what is done, how far it has come, and how far it will go if that is known."""


class DatasetBuilderConfig(BaseConfig):
    """What decides which tokens come out."""

    sources: list[dict[str, Any]]
    """Where the texts come from, as a recipe says it."""
    corpus_weights: list[float]
    """How many times an epoch goes through each source."""
    tokenizers: TokenizersConfig
    """How they are cut."""
    filtering: FilterConfig | None
    """Which pairs are left out; None for running text."""
    seed: int
    """What is held out, and what tokens are learned from, follows from this."""
    needs_held_out: bool
    """Whether some of it is kept to validate on."""
    max_tokenizer_lines: PositiveInt
    """Most pairs, or lines, that tokenizers learn from."""
    shard_size: PositiveInt = SHARD_SIZE
    """Pairs, or lines, that become one shard."""

    def as_metadata(self) -> dict[str, Any]:
        """What is written down, to know the tokens by."""
        return tokenization_settings(self.model_dump(mode="json"))

    @property
    def is_monolingual(self) -> bool:
        """Whether it is running text, and not pairs."""
        return self.filtering is None


def tokenization_settings(settings: Any) -> Any:
    """Settings as JSON, without those by which nothing is cut before a batch is made."""
    if isinstance(settings, dict):
        items = settings.items()
        return {
            name: tokenization_settings(each)
            for name, each in items
            if name not in _TRAINING_TIME_SETTINGS
        }
    return (
        [tokenization_settings(each) for each in settings]
        if isinstance(settings, list)
        else settings
    )


class DatasetBuilder:
    """Makes a folder of tokens, or what is missing of it. Only one may be at work in a folder.

    Texts are cut by the tokenizers that are given, or else by new ones, learned from a sample.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sequence[ExampleSource],
        config: DatasetBuilderConfig,
        *,
        log_message: MessageLogger,
        on_progress: ProgressCallback,
        tokenizers: TokenizerPair | None = None,
        workers: int | None = None,
    ) -> None:
        self.folder = folder
        self.sources = sources
        self.config = config
        self.log_message = log_message
        self.on_progress = on_progress
        self.tokenizers = tokenizers
        self.workers = workers or available_cores()

    def build(self) -> PreparedDataset:
        """Make all that is not there yet, and open it."""
        with explain_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        clean_up_interrupted(self.folder)
        plan, is_complete = self._read_plan() or (self._make_plan(), False)
        missing = self._missing_shards(plan)
        if missing or not is_complete:
            self._tokenize_shards(plan, missing)
            self._write_manifest(plan, is_complete=True)
        prepared = load_prepared_dataset(self.folder, verify=False)  # it just has been
        if not self.config.is_monolingual:
            check_not_empty(prepared.filter_report(), location=_DATA_SETTING)
        return prepared

    def _read_plan(self) -> tuple[ShardingPlan, bool] | None:
        """Read what was planned before; None if nothing was, or if it cannot be trusted."""
        if not (self.folder / MANIFEST).exists():
            return None
        try:
            there = read_and_verify_manifest(self.folder).get(MANIFEST_KEY, {})
        except CorruptRunError as error:
            self.log_message(f"{error.location}: {error.message}; the data is read anew")
            return None
        _check_same_settings(self.folder, there.get("settings"), self.config.as_metadata())
        shards = [ShardSpec(*each) for each in there["shards"]]
        return ShardingPlan(there["num_rows"], there["held_out"], shards), there["complete"]

    def _make_plan(self) -> ShardingPlan:
        size = 0 if self.tokenizers else self.config.max_tokenizer_lines
        reservoir = ReservoirSampler[Any](size, seed=self.config.seed)
        selection = self.config.filtering
        is_watched = selection is not None and selection.duplicates == "drop"
        # Named so that `clean_up_interrupted` clears it away after a kill.
        with TemporaryDirectory(prefix=".writing-", dir=self.folder) as temporary:
            hashes = DuplicateFinder(Path(temporary)) if is_watched else None
            tally = self._scan(reservoir, hashes)
            held_out = self._choose_held_out(tally.rows) if self.config.needs_held_out else []
            if hashes is not None:
                with atomic_replace(self.folder / DUPLICATES_FILE) as path:
                    hashes.write_duplicate_mask(path, held_out)
        text = self.tokenizers or self._train_tokenizers(
            reservoir.exclude_rows(held_out), tally.rows
        )
        with atomic_replace(self.folder / TOKENIZER_FOLDER) as path:
            path.mkdir()
            text.save(path)
        plan = ShardingPlan(tally.rows, held_out, tally.specs)
        self._write_manifest(plan, is_complete=False)
        return plan

    def _scan(
        self, reservoir: ReservoirSampler[Any], hashes: DuplicateFinder | None
    ) -> ShardCounter:
        tally = ShardCounter()
        for block in iter_blocks(self.sources, self.config.shard_size):
            tally.add(block)
            reservoir.add(block.first_row, block.examples)
            if hashes is not None:
                hashes.add(hash_pairs(block.examples))
            self.on_progress("reading", tally.rows, None)
        return tally

    def _choose_held_out(self, count: int) -> list[int]:
        at = "; ".join(source.describe() for source in self.sources)
        if self.config.is_monolingual:
            return list(choose_held_out_lines(count, location=at))
        return choose_held_out_rows(count, seed=self.config.seed, location=at)

    def _train_tokenizers(self, sample: list[Any], count: int) -> TokenizerPair:
        kind = "lines" if self.config.is_monolingual else "pairs"
        self.log_message(f"learning the vocabulary from {len(sample)} of {count} {kind}")
        self.on_progress("learning the vocabulary", 0, None)
        sides = (sample, []) if self.config.is_monolingual else zip(*sample, strict=True)
        return self.config.tokenizers.train(*sides)

    def _missing_shards(self, plan: ShardingPlan) -> dict[int, str]:
        """Name the shards that are to be made, each with the key by which it will be known."""
        keys = self._shard_keys(plan)
        folders = [self.folder / shard_name(number) for number in range(len(keys))]
        found = map_in_threads(_read_shard_key, folders)
        for folder, key in zip(folders, found, strict=True):
            if isinstance(key, CorruptRunError):
                self.log_message(f"{key.location}: {key.message}; {folder.name} is made anew")
        return {number: key for number, key in enumerate(keys) if found[number] != key}

    def _shard_keys(self, plan: ShardingPlan) -> list[str]:
        """A shard is known by all that it was made of and made by."""
        made_by = [
            FORMAT,
            self.config.as_metadata()["filtering"],
            folder_digest(self.folder / TOKENIZER_FOLDER),
        ]
        repeats, first, keys = self._duplicate_mask(), 0, list[str]()
        for number, shard in enumerate(plan.shards):
            end = first + shard.num_rows
            held_out = rows_between(plan.held_out, first, end)
            repeated = _digest(repeats[first:end].tobytes())
            made_of = [number == 0, *shard, held_out, repeated]
            keys.append(_digest(json.dumps([made_by, made_of]).encode()))
            first = end
        return keys

    def _duplicate_mask(self) -> ByteMask:
        path = self.folder / DUPLICATES_FILE
        return np.memmap(path, np.uint8, "r") if path.exists() else np.empty(0, np.uint8)

    def _tokenize_shards(self, plan: ShardingPlan, missing: dict[int, str]) -> None:
        """Go through the data and make the missing shards."""
        settings = self.config
        text, selection = settings.tokenizers, settings.filtering
        job = TokenizationJob(
            tokenizers=text,
            folder=self.folder / TOKENIZER_FOLDER,
            filtering=selection,
            data_name=_DATA_SETTING,
        )
        passing = TokenizationPass(
            self.sources,
            plan,
            missing,
            shard_size=settings.shard_size,
            duplicate_mask=self._duplicate_mask(),
            on_progress=lambda done: self.on_progress("cutting", done, plan.num_rows),
        )
        rows = sum(plan.shards[number].num_rows for number in missing)
        with tokenization_pool(job, max(1, min(self.workers, rows // CHUNK_SIZE))) as cut:
            for number, cuts in groupby(passing.tokenize_with(cut), key=lambda each: each[0]):
                write_shard(
                    self.folder / shard_name(number),
                    passing.verify_unchanged(number, (each for _, each in cuts)),
                    {"corpus_index": plan.shards[number].corpus_index, "key": missing[number]},
                    prefix=[EOS] if settings.is_monolingual and number == 0 else (),
                )
        passing.check_all_unchanged()
        if plan.held_out:
            lines = (json.dumps(each, ensure_ascii=False) for each in passing.held_out)
            write_text(self.folder / HELD_OUT_FILE, "".join(f"{line}\n" for line in lines))

    def _write_manifest(self, plan: ShardingPlan, *, is_complete: bool) -> None:
        files = [path for path in (self.folder / TOKENIZER_FOLDER).rglob("*") if path.is_file()]
        others = [DUPLICATES_FILE]
        if is_complete:
            others += [
                HELD_OUT_FILE,
                *(f"{shard_name(n)}/{MANIFEST}" for n in range(len(plan.shards))),
            ]
        files += [path for name in others if (path := self.folder / name).exists()]
        prepared = {
            "format": FORMAT,
            "complete": is_complete,
            "settings": self.config.as_metadata(),
        }
        write_manifest(self.folder, files, {MANIFEST_KEY: {**prepared, **plan._asdict()}})


def _read_shard_key(folder: Path) -> str | CorruptRunError | None:
    """The key of a shard; None if there is no shard, or what is wrong with it."""
    if not folder.exists():
        return None
    try:
        return read_and_verify_manifest(folder)[METADATA_KEY]["key"]
    except CorruptRunError as error:
        return error


def folder_digest(folder: Path) -> str:
    """Tell one folder of files from another."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [[path.relative_to(folder).as_posix(), _digest(path.read_bytes())] for path in files]
    return _digest(json.dumps(named).encode())


def _digest(contents: bytes) -> str:
    return blake2b(contents, digest_size=16).hexdigest()


def first_difference(saved: Any, current: Any, setting: str = "") -> tuple[str, Any, Any]:
    """Where two settings first differ, and what stands there."""
    if isinstance(saved, dict) and isinstance(current, dict):
        name = next(name for name in [*current, *saved] if current.get(name) != saved.get(name))
        inner = f"{setting}.{name}" if setting else name
        return first_difference(saved.get(name), current.get(name), inner)
    return setting, saved, current


def _check_same_settings(folder: Path, saved: Any, current: dict[str, Any]) -> None:
    if saved != current:
        at, old, new = first_difference(saved or {}, current)
        raise RunError(
            str(folder),
            f"the folder holds tokens made with {at}={old}, but now it is {new}",
            "give the settings it was begun with to go on, or name another folder",
        )
