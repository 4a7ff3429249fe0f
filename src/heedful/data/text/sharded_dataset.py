"""Tokenized corpora in files: shards that are memory-mapped, and the folder that holds them.

tokenizers/        the tokenizers
shard-00000/ ...   the tokens, each shard with a manifest
held-out.jsonl     the dev examples, unless the recipe names others
duplicates.bin     which pairs are duplicates
manifest.json      settings and SHA-256 of all of it

Invariant: a shard is written completely or not at all, and memory does not grow with the corpus.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from heedful.config import BaseConfig
from heedful.data.text.example_formats import ExampleFormat, ExampleSource, TokenizedChunk
from heedful.data.text.filtering import FilterConfig, FilterReport, merge_reports
from heedful.data.text.pair_dataset import InMemoryPairDataset, deinterleave
from heedful.errors import CorruptRunError, DataError, check
from heedful.storage.atomic import atomic_replace
from heedful.storage.manifest import (
    read_and_verify_manifest,
    read_manifest_unverified,
    require_folder,
    write_manifest,
)
from heedful.tokenization.ragged_array import Integers, offsets_from_lengths, range_indices

FORMAT = 3
MANIFEST_KEY, METADATA_KEY = "prepared", "shard"
TOKENS_FILE = "tokens.bin"
TOKENIZER_FOLDER, HELD_OUT_FILE, DUPLICATES_FILE = "tokenizers", "held-out.jsonl", "duplicates.bin"
_ALIGNMENT = 8  # bytes; the offsets start at a multiple of it
_REBUILD_HINT = "run the command that wrote it again: only what is corrupt is rebuilt"
_PREPARE_HINT = "name a folder written by `heedful prepare`"
_RESUME_HINT = "wait for `heedful prepare`, or run the same command to resume it"


class Shard(NamedTuple):
    """Tokens and the offsets of the texts among them, both memory-mapped."""

    values: NDArray[np.integer[Any]]
    offsets: NDArray[np.integer[Any]]  # one more than there are texts


def write_shard(
    folder: Path, chunks: Iterable[TokenizedChunk], metadata: dict[str, Any], prefix: Sequence[int]
) -> None:
    """Write a shard that starts with the tokens `prefix`."""
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
        with (temporary / TOKENS_FILE).open("wb") as file:
            lengths, dtype = [np.array([len(prefix)])], "<u2"
            reports: list[dict[str, Any]] = []
            for chunk in chunks:
                values = chunk.values.astype(chunk.values.dtype.newbyteorder("<"), copy=False)
                if not reports:
                    file.write(np.array(prefix, dtype=values.dtype).tobytes())
                file.write(values.tobytes())
                lengths.append(chunk.lengths)
                reports.append(chunk.metadata)
                dtype = values.dtype.str
            offsets = np.cumsum(np.concatenate(lengths))
            offsets = offsets.astype("<u4" if offsets[-1] < 2**32 else "<u8")
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(offsets.tobytes())
        sizes = {"tokens": int(offsets[-1]), "texts": len(offsets) - 1}
        dtypes = {"values": dtype, "offsets": offsets.dtype.str}
        metadata = {**metadata, **sizes, **dtypes, "reports": reports}
        write_manifest(temporary, [temporary / TOKENS_FILE], {METADATA_KEY: metadata})


def open_shard(folder: Path, metadata: dict[str, Any]) -> Shard:
    """Memory-map a verified shard."""
    dtype, offsets_dtype = np.dtype(metadata["values"]), np.dtype(metadata["offsets"])
    size = metadata["tokens"] * dtype.itemsize
    # A plain array: indexing a np.memmap is slower.
    contents = np.asarray(np.memmap(folder / TOKENS_FILE, np.uint8, "r"))
    offsets = contents[size + -size % _ALIGNMENT :]
    return Shard(contents[:size].view(dtype), offsets.view(offsets_dtype))


class ShardedCollection:
    """Shards whose items are numbered consecutively."""

    def __init__(self, shards: Sequence[Shard], sizes: Iterable[int]) -> None:
        self.shards = shards
        self._offsets = offsets_from_lengths(np.array(list(sizes), dtype=np.int64))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def locate(self, items: Integers) -> Iterator[tuple[Shard, Integers, Integers]]:
        """Yield each shard with positions in `items` and the item numbers within the shard."""
        shard_indices = np.searchsorted(self._offsets, items, side="right") - 1
        order = np.argsort(shard_indices, kind="stable")
        edges = np.flatnonzero(np.diff(shard_indices[order])) + 1
        for positions in np.split(order, edges) if len(order) else ():
            shard_index = shard_indices[positions[0]]
            yield self.shards[shard_index], positions, items[positions] - self._offsets[shard_index]


class ShardedPairDataset(ShardedCollection):
    """A tokenized parallel corpus in shards, in which sources and targets alternate."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards, (len(shard.offsets) // 2 for shard in shards))

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the source and target lengths of these rows."""
        sources, targets = np.empty((2, len(rows)), dtype=np.int64)
        for shard, positions, shard_rows in self.locate(rows):
            _, sources[positions], targets[positions] = _pair_offsets(shard, shard_rows)
        return sources, targets

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """Return these rows, in this order."""
        values, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        order = [np.empty(0, np.int64)]
        for shard, positions, shard_rows in self.locate(rows):
            starts, sources, targets = _pair_offsets(shard, shard_rows)
            values.append(shard.values[range_indices(starts, sources + targets)].astype(np.int32))
            lengths.append(np.stack([sources, targets], axis=1).ravel())
            order.append(positions)
        pairs = deinterleave(np.concatenate(values), np.concatenate(lengths))
        return pairs.select(np.argsort(np.concatenate(order)))

    def for_epoch(self, epoch: int) -> Self:
        """Return all rows: each epoch has the same."""
        del epoch
        return self


def _pair_offsets(shard: Shard, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """Return starts, source lengths and target lengths of pairs."""
    indices = 2 * rows[:, None] + np.arange(3)
    starts, middles, ends = shard.offsets[indices].astype(np.int64).T
    return starts, middles - starts, ends - middles


class ShardedTokenStream(ShardedCollection):
    """Running text in shards: one row of tokens, indexed by position."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards, (len(shard.values) for shard in shards))

    def __getitem__(self, index: Integers | slice) -> NDArray[np.int32]:
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        tokens = np.empty(index.size, dtype=np.int32)
        for shard, positions, shard_positions in self.locate(index.ravel()):
            tokens[positions] = shard.values[shard_positions]
        return tokens.reshape(index.shape)


class PreparedDataConfig(BaseConfig):
    """Tokens written by `heedful prepare`; the recipe must tokenize in the same way."""

    type: Literal["prepared"] = "prepared"
    path: str
    """The folder."""
    verify: bool = True
    """Whether to check the hash of every file; if not, only sizes are checked."""

    is_single_pass: ClassVar[bool] = False

    def describe(self) -> str:
        """Name the source in messages."""
        return f"the tokens in {self.path}"


class PreparedDataset(NamedTuple):
    """A complete folder of tokens."""

    folder: Path
    settings: dict[str, Any]  # by which it was built
    shards: list[Shard]
    shard_metadata: list[dict[str, Any]]
    fingerprint: str
    """Hash of the hashes of its files."""

    @property
    def format_name(self) -> str:
        """The name of its `ExampleFormat`."""
        return self.settings["example_format"]

    def pair_datasets(self) -> list[ShardedPairDataset]:
        """Return the pairs of each corpus."""
        shards: list[list[Shard]] = [[] for _ in self.settings["corpus_weights"]]
        for shard, metadata in zip(self.shards, self.shard_metadata, strict=True):
            shards[metadata["corpus_index"]].append(shard)
        return list(map(ShardedPairDataset, shards))

    def reports(self) -> list[dict[str, Any]]:
        """Return the metadata of all chunks."""
        return [report for metadata in self.shard_metadata for report in metadata["reports"]]

    def filter_report(self) -> FilterReport:
        """Return how many pairs were kept and dropped."""
        config = FilterConfig(**self.settings["filtering"])
        return merge_reports(FilterReport(config, **report) for report in self.reports())

    def total_count(self, name: str) -> int:
        """Return the number of lines, or of unknown tokens."""
        return sum(report[name] for report in self.reports())

    def held_out_corpus(self, example_format: ExampleFormat) -> ExampleSource:
        """Return the dev examples, none if the recipe named others."""
        path = self.folder / HELD_OUT_FILE
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        locations, values = zip(*map(json.loads, lines), strict=True) if lines else ((), ())
        return ExampleSource(list(map(example_format.from_json, values)), locations.__getitem__)


def load_prepared_dataset(folder: Path, *, verify: bool = True) -> PreparedDataset:
    """Open a folder of tokens after checking it against its manifests."""
    require_folder(folder, "folder of tokens", _PREPARE_HINT, error=DataError)
    try:
        manifest = read_and_verify_manifest(folder)
        prepared = manifest.get(MANIFEST_KEY, {})
        message = "not a folder of tokens, or one of another version of heedful"
        check(prepared.get("format") == FORMAT, str(folder), message, _PREPARE_HINT, DataError)
        message = "the tokens are not complete yet"
        check(prepared["complete"], str(folder), message, _RESUME_HINT, DataError)
        folders = [folder / shard_name(index) for index in range(len(prepared["shards"]))]
        read = read_and_verify_manifest if verify else read_manifest_unverified
        metadata = [shard[METADATA_KEY] for shard in map_in_threads(read, folders)]
    except CorruptRunError as error:
        raise CorruptRunError(error.location, error.message, _REBUILD_HINT) from None
    return PreparedDataset(
        folder,
        prepared["settings"],
        list(map(open_shard, folders, metadata)),
        metadata,
        fingerprint=blake2b(json.dumps(manifest["files"]).encode(), digest_size=16).hexdigest(),
    )


def shard_name(index: int) -> str:
    """Return the name of the folder of a shard."""
    return f"shard-{index:05d}"


def map_in_threads(function: Callable[[Path], Any], folders: Sequence[Path]) -> list[Any]:
    """Apply a function to many folders in threads; hashing releases the GIL."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(function, folders))
