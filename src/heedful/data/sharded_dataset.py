"""Prepared: a corpus as a folder of tokens, made once and read by many.

text/              the tokenizers it was cut by
shard-00000/ ...   the tokens
held-out.jsonl     what is validated on, if nothing else was given for that
repeats.bin        which pairs came before, if these are left out
manifest.json      how it was made, and the SHA-256 of all of this; written anew when all is there
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.config import BaseConfig
from heedful.data.chunk_tokenizer import CHUNK_SIZE, TokenizedChunk, deinterleave, report_from_dict
from heedful.data.filtering import FilterConfig, FilterReport, merge_reports
from heedful.data.pair_dataset import (
    InMemoryPairDataset,
    Integers,
    Pair,
    offsets_from_lengths,
    range_indices,
)
from heedful.errors import CorruptRunError, DataError, did_you_mean
from heedful.storage import (
    MANIFEST,
    atomic_replace,
    read_and_verify_manifest,
    read_manifest_unverified,
    write_manifest,
)

# Shards: the tokens of a corpus in files, read from where they lie.
#
# A shard is a folder that is written whole or not at all: the tokens of its texts one after the
# other, then where each begins, and a manifest with their hash. What is read of it is what a batch
# needs; memory does not grow with the corpus.

TOKENS_FILE = "tokens.bin"
METADATA_KEY = "shard"
_ALIGNMENT = 8  # bytes: the table of beginnings stands at a multiple of it

Values = NDArray[np.integer[Any]]


class Shard(NamedTuple):
    """Tokens, and where each text begins among them, both in a file."""

    values: Values
    offsets: Values  # one more than there are texts


def write_shard(
    folder: Path,
    chunks: Iterable[TokenizedChunk],
    metadata: dict[str, Any],
    *,
    prefix: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """Write a shard; `before` are tokens of no text that begin it. Give what the cuts report."""
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
        with (temporary / TOKENS_FILE).open("wb") as file:
            lengths, reports, kind = [np.array([len(prefix)])], list[dict[str, Any]](), "<u2"
            for cut in chunks:
                values = cut.values.astype(cut.values.dtype.newbyteorder("<"), copy=False)
                if not reports:
                    file.write(np.array(prefix, dtype=values.dtype).tobytes())
                file.write(values.tobytes())
                lengths.append(cut.lengths)
                reports.append(cut.metadata)
                kind = values.dtype.str
            bounds = np.cumsum(np.concatenate(lengths))
            bounds = bounds.astype("<u4" if bounds[-1] < 2**32 else "<u8")
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(bounds.tobytes())
        sizes = {"tokens": int(bounds[-1]), "texts": len(bounds) - 1}
        kinds = {"values": kind, "bounds": bounds.dtype.str}
        about = {**metadata, **sizes, **kinds, "reports": reports}
        write_manifest(temporary, [temporary / TOKENS_FILE], {METADATA_KEY: about})
    return reports


def open_shard(folder: Path, metadata: dict[str, Any]) -> Shard:
    """Open a shard that is known to be sound."""
    values, bounds = np.dtype(metadata["values"]), np.dtype(metadata["bounds"])
    size = metadata["tokens"] * values.itemsize
    file = np.memmap(folder / TOKENS_FILE, np.uint8, "r")
    # A plain array: a memory map is slower to take from.
    whole = np.asarray(file)
    table = whole[size + -size % _ALIGNMENT :]
    return Shard(whole[:size].view(values), table.view(bounds))


class ShardedCollection:
    """Shards whose items are numbered through."""

    def __init__(self, shards: Sequence[Shard], sizes: Iterable[int]) -> None:
        self.shards = shards
        self._offsets = offsets_from_lengths(np.array(list(sizes), dtype=np.int64))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def locate(self, items: Integers) -> Iterator[tuple[Shard, Integers, Integers]]:
        """Give each shard that has some of these items, which they are, and their numbers in it."""
        owners = np.searchsorted(self._offsets, items, side="right") - 1
        order = np.argsort(owners, kind="stable")
        edges = np.flatnonzero(np.diff(owners[order])) + 1
        for here in np.split(order, edges) if len(order) else ():
            owner = owners[here[0]]
            yield self.shards[owner], here, items[here] - self._offsets[owner]


class ShardedPairDataset(ShardedCollection):
    """A tokenised parallel corpus in shards: of every pair the source, then the target."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards, (len(shard.offsets) // 2 for shard in shards))

    def sequence_lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        sources, targets = np.empty((2, len(rows)), dtype=np.int64)
        for shard, here, found in self.locate(rows):
            _, sources[here], targets[here] = _pair_offsets(shard, found)
        return sources, targets

    def select(self, rows: Integers) -> InMemoryPairDataset:
        """These rows, in this order, in memory."""
        values, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        order = [np.empty(0, np.int64)]
        for shard, here, found in self.locate(rows):
            starts, sources, targets = _pair_offsets(shard, found)
            values.append(shard.values[range_indices(starts, sources + targets)].astype(np.int32))
            lengths.append(np.stack([sources, targets], axis=1).ravel())
            order.append(here)
        taken = deinterleave(np.concatenate(values), np.concatenate(lengths))
        return taken.select(np.argsort(np.concatenate(order)))

    def for_epoch(self, epoch: int) -> ShardedPairDataset:
        """All of it, in every epoch."""
        del epoch
        return self


def _pair_offsets(shard: Shard, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """Where pairs begin, and how long their sources and targets are."""
    places = 2 * rows[:, None] + np.arange(3)
    starts, middles, ends = shard.offsets[places].astype(np.int64).T
    return starts, middles - starts, ends - middles


class ShardedTokenStream(ShardedCollection):
    """Running text in shards: one long row of tokens, asked for by their places."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards, (len(shard.values) for shard in shards))

    def __getitem__(self, index: Integers | slice) -> NDArray[np.int32]:
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        found = np.empty(index.size, dtype=np.int32)
        for shard, here, where in self.locate(index.ravel()):
            found[here] = shard.values[where]
        return found.reshape(index.shape)


FORMAT = 1
MANIFEST_KEY = "prepared"
TOKENIZER_FOLDER, HELD_OUT_FILE, DUPLICATES_FILE = "tokenizers", "held-out.jsonl", "repeats.bin"
_REBUILD_HINT = "give the command that made it again: only what is damaged is made anew"


class PreparedDataConfig(BaseConfig):
    """Tokens that `heedful prepare` has made; the recipe must cut text as it did then."""

    type: Literal["prepared"] = "prepared"
    path: str
    """The folder."""
    verify: bool = True
    """Whether every byte is held against its hash first; if not, only sizes are."""

    def describe(self) -> str:
        """Name the source in a report."""
        return f"the tokens in {self.path}"


class PreparedDataset(NamedTuple):
    """A folder of tokens that are all there."""

    folder: Path
    settings: dict[str, Any]  # by which it was made
    shards: list[Shard]
    shard_metadata: list[dict[str, Any]]  # of each shard
    fingerprint: str
    """Tells one corpus from another, by the hashes of its files."""

    @property
    def is_monolingual(self) -> bool:
        """Whether it is running text, and not pairs."""
        return self.settings["filtering"] is None

    def pair_datasets(self) -> list[ShardedPairDataset]:
        """The pairs of each source, in shards."""
        return [
            ShardedPairDataset(self._shards_of(part)) for part in range(len(self.corpus_weights))
        ]

    def token_stream(self) -> ShardedTokenStream:
        """The running text, in shards."""
        return ShardedTokenStream(self.shards)

    @property
    def corpus_weights(self) -> list[float]:
        """How many times an epoch goes through each part."""
        return self.settings["corpus_weights"]

    def filter_report(self) -> FilterReport:
        """What was kept of the pairs, and what was left out."""
        config = FilterConfig(**self.settings["filtering"])
        facts = (facts for about in self.shard_metadata for facts in about["reports"])
        return merge_reports(report_from_dict(each, config) for each in facts)

    def total_count(self, name: str) -> int:
        """How many lines there are, or how many unknown tokens."""
        return sum(facts[name] for about in self.shard_metadata for facts in about["reports"])

    def held_out_examples(self) -> list[Any]:
        """The pairs or lines to validate on; none if others were to be given for that."""
        path = self.folder / HELD_OUT_FILE
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        found = map(json.loads, lines)
        return list(found) if self.is_monolingual else [Pair(*each) for each in found]

    def _shards_of(self, part: int) -> list[Shard]:
        both = zip(self.shards, self.shard_metadata, strict=True)
        return [shard for shard, about in both if about["corpus_index"] == part]


def load_prepared_dataset(folder: Path, *, verify: bool = True) -> PreparedDataset:
    """Open a folder of tokens, after holding it against its manifests."""
    _check_is_prepared(folder)
    try:
        manifest = read_and_verify_manifest(folder)
        prepared = manifest.get(MANIFEST_KEY, {})
        _check_complete(folder, prepared)
        folders = [folder / shard_name(number) for number in range(len(prepared["shards"]))]
        listings = map_in_threads(
            read_and_verify_manifest if verify else read_manifest_unverified, folders
        )
    except CorruptRunError as error:
        raise CorruptRunError(error.location, error.message, _REBUILD_HINT) from None
    about = [listing[METADATA_KEY] for listing in listings]
    return PreparedDataset(
        folder,
        prepared["settings"],
        list(map(open_shard, folders, about)),
        about,
        fingerprint=blake2b(json.dumps(manifest["files"]).encode(), digest_size=16).hexdigest(),
    )


def shard_name(index: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{index:05d}"


def map_in_threads(function: Callable[[Path], Any], folders: Sequence[Path]) -> list[Any]:
    """Do the same to many folders; hashing leaves other threads free to run."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(function, folders))


def _check_is_prepared(folder: Path) -> None:
    if (folder / MANIFEST).exists():
        return
    beside = [path.parent.name for path in folder.parent.glob(f"*/{MANIFEST}")]
    problem = "there are no tokens in this folder" if folder.exists() else "no such folder"
    raise DataError(
        str(folder),
        f"{problem}{did_you_mean(folder.name, beside)}",
        "name a folder written by `heedful prepare`",
    )


def _check_complete(folder: Path, prepared: dict[str, Any]) -> None:
    if prepared.get("format") != FORMAT:
        raise DataError(
            str(folder),
            "this is not a folder of tokens, or one of another version of heedful",
            "name a folder written by `heedful prepare`",
        )
    if not prepared["complete"]:
        raise DataError(
            str(folder),
            "the tokens are not all there yet",
            "wait for `heedful prepare`, or give its command again: it goes on",
        )


# Survey: how much data is there, and what does a fair sample of it look like?
#
# Data too large for memory is gone through twice: once to see that it is sound, to count it and to
# draw what tokenizers learn from, and once to be cut. Both times it comes in the same chunks.

Example = TypeVar("Example")


class ExampleSource(Protocol):
    """Where examples come from, whether pairs or lines."""

    def stream(self) -> Iterator[Any]:
        """Give the examples as they are read."""
        ...

    def describe(self) -> str:
        """Name the source in a report."""
        ...


class ExampleBlock(NamedTuple):
    """Some examples that follow one another, all of one shard."""

    shard: int
    corpus_index: int  # the source they are of
    first_row: int  # their first row among all there are
    examples: list[Any]
    texts: bytes  # the same as JSON


class ShardSpec(NamedTuple):
    """Which examples a shard is made of."""

    corpus_index: int
    num_rows: int
    digest: str  # of their texts


def iter_blocks(sources: Sequence[ExampleSource], shard_size: int) -> Iterator[ExampleBlock]:
    """Go through sources one after the other; no shard is of two."""
    shard = row = 0
    for part, source in enumerate(sources):
        stream = source.stream()
        for _ in count():
            left = shard_size
            while some := list(islice(stream, min(left, CHUNK_SIZE))):
                texts = json.dumps(some, ensure_ascii=False).encode()
                yield ExampleBlock(shard, part, row, some, texts)
                row += len(some)
                left -= len(some)
            if left < shard_size:
                shard += 1
            if left:
                break


class ReservoirSampler(Generic[Example]):
    """At most so many of the examples that come, each with the same chance (Vitter 1985)."""

    def __init__(self, size: int, *, seed: int) -> None:
        self.size = size
        self._sample = list[tuple[int, Example]]()
        self._chance = Random(seed)

    def add(self, first_row: int, examples: Sequence[Example]) -> None:
        """Let some more examples come, which stand in this row and those after it."""
        for row, example in enumerate(examples, first_row):
            if row < self.size:
                self._sample.append((row, example))
            elif (slot := int(self._chance.random() * (row + 1))) < self.size:
                self._sample[slot] = row, example

    def exclude_rows(self, rows: Sequence[int]) -> list[Example]:
        """What was drawn, but for these rows, in the order in which it came."""
        others = set(rows)
        drawn = sorted(self._sample, key=lambda each: each[0])
        return [example for row, example in drawn if row not in others]


class ShardCounter:
    """Counts rows and takes the digest of each shard's texts."""

    def __init__(self) -> None:
        self.rows = 0
        self.specs = list[ShardSpec]()
        self._shard = -1

    def add(self, block: ExampleBlock) -> None:
        """Count one more stretch."""
        if block.shard != self._shard:
            self._shard, self._digest = block.shard, blake2b(digest_size=16)
            self.specs.append(ShardSpec(block.corpus_index, 0, ""))
        self._digest.update(block.texts)
        self.rows += len(block.examples)
        part, rows, _ = self.specs[-1]
        self.specs[-1] = ShardSpec(part, rows + len(block.examples), self._digest.hexdigest())
