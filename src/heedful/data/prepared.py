"""Prepared: a corpus as a folder of tokens, made once and read by many.

text/              the tokenizers it was cut by
shard-00000/ ...   the tokens
held-out.jsonl     what is validated on, if nothing else was given for that
repeats.bin        which pairs came before, if these are left out
manifest.json      how it was made, and the SHA-256 of all of this; written anew when all is there
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.config import Choice
from heedful.data.cutting import report_of
from heedful.data.records import Pair
from heedful.data.selection import SelectionConfig, SelectionReport, join_reports
from heedful.data.shards import FACTS, Shard, ShardedPairs, ShardedRow, open_shard
from heedful.errors import DamagedRunError, DataError, did_you_mean
from heedful.storage import MANIFEST, read_listing, read_manifest

FORMAT = 1
PREPARED = "prepared"
TEXT, HELD_OUT, REPEATS = "text", "held-out.jsonl", "repeats.bin"
_AGAIN = "give the command that made it again: only what is damaged is made anew"


class TokensConfig(Choice):
    """Tokens that `heedful prepare` has made; the recipe must cut text as it did then."""

    kind: Literal["tokens"] = "tokens"
    path: str
    """The folder."""
    verify: bool = True
    """Whether every byte is held against its hash first; if not, only sizes are."""

    def describe(self) -> str:
        """Name the source in a report."""
        return f"the tokens in {self.path}"


class Prepared(NamedTuple):
    """A folder of tokens that are all there."""

    folder: Path
    settings: dict[str, Any]  # by which it was made
    shards: list[Shard]
    about: list[dict[str, Any]]  # of each shard
    fingerprint: str
    """Tells one corpus from another, by the hashes of its files."""

    @property
    def is_of_text(self) -> bool:
        """Whether it is running text, and not pairs."""
        return self.settings["selection"] is None

    def parts(self) -> list[ShardedPairs]:
        """The pairs of each source, in shards."""
        return [ShardedPairs(self._shards_of(part)) for part in range(len(self.weights))]

    def row(self) -> ShardedRow:
        """The running text, in shards."""
        return ShardedRow(self.shards)

    @property
    def weights(self) -> list[float]:
        """How many times an epoch goes through each part."""
        return self.settings["weights"]

    def report(self) -> SelectionReport:
        """What was kept of the pairs, and what was left out."""
        config = SelectionConfig(**self.settings["selection"])
        facts = (facts for about in self.about for facts in about["reports"])
        return join_reports(report_of(each, config) for each in facts)

    def count(self, name: str) -> int:
        """How many lines there are, or how many unknown tokens."""
        return sum(facts[name] for about in self.about for facts in about["reports"])

    def held_out(self) -> list[Any]:
        """The pairs or lines to validate on; none if others were to be given for that."""
        path = self.folder / HELD_OUT
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        found = map(json.loads, lines)
        return list(found) if self.is_of_text else [Pair(*each) for each in found]

    def _shards_of(self, part: int) -> list[Shard]:
        both = zip(self.shards, self.about, strict=True)
        return [shard for shard, about in both if about["part"] == part]


def open_prepared(folder: Path, *, verify: bool = True) -> Prepared:
    """Open a folder of tokens, after holding it against its manifests."""
    _refuse_other_folders(folder)
    try:
        manifest = read_manifest(folder)
        prepared = manifest.get(PREPARED, {})
        _refuse_unfinished(folder, prepared)
        folders = [folder / shard_name(number) for number in range(len(prepared["shards"]))]
        listings = in_threads(read_manifest if verify else read_listing, folders)
    except DamagedRunError as error:
        raise DamagedRunError(error.at, error.problem, _AGAIN) from None
    about = [listing[FACTS] for listing in listings]
    return Prepared(
        folder,
        prepared["settings"],
        list(map(open_shard, folders, about)),
        about,
        fingerprint=blake2b(json.dumps(manifest["files"]).encode(), digest_size=16).hexdigest(),
    )


def shard_name(number: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{number:05d}"


def in_threads(work: Callable[[Path], Any], folders: Sequence[Path]) -> list[Any]:
    """Do the same to many folders; hashing leaves other threads free to run."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(work, folders))


def _refuse_other_folders(folder: Path) -> None:
    if (folder / MANIFEST).exists():
        return
    beside = [path.parent.name for path in folder.parent.glob(f"*/{MANIFEST}")]
    problem = "there are no tokens in this folder" if folder.exists() else "no such folder"
    raise DataError(
        str(folder),
        f"{problem}{did_you_mean(folder.name, beside)}",
        "name a folder written by `heedful prepare`",
    )


def _refuse_unfinished(folder: Path, prepared: dict[str, Any]) -> None:
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
