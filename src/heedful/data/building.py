"""Building: how does a corpus of any size become a folder of tokens?

The data is gone through once to be checked, counted and learned from, and once to be cut, shard
by shard. What is finished stays: after any interruption, even a kill, the same command makes what
is missing or damaged, and the same tokens come out, whoever cut them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import PositiveInt

from heedful.config import Choice
from heedful.data.cutting import CHUNK, Job
from heedful.data.duplicates import HashFiles
from heedful.data.passing import Flags, Passing, Plan, within
from heedful.data.prepare import held_out_rows
from heedful.data.prepared import (
    FORMAT,
    HELD_OUT,
    PREPARED,
    REPEATS,
    TEXT,
    Prepared,
    in_threads,
    open_prepared,
    shard_name,
)
from heedful.data.running import held_out_lines
from heedful.data.selection import SelectionConfig, hash_pairs, refuse_nothing_left
from heedful.data.shards import FACTS, write_shard
from heedful.data.survey import Reservoir, ShardPlan, Source, Tally, stretches
from heedful.data.workers import available_cores, cutting
from heedful.errors import DamagedRunError, RunError
from heedful.storage import (
    MANIFEST,
    explaining_failures,
    read_manifest,
    replacing,
    sweep,
    write_manifest,
    write_text,
)
from heedful.text.config import TextConfig, TextPair
from heedful.text.vocabulary import EOS

SHARD_SIZE = 250_000
_AT = "data.train"
_LATER = {"regularisation", "regularised"}

Tell = Callable[[str], None]
Watch = Callable[[str, int, int | None], None]
"""Is told what is done, how far it has come, and how far it will go if that is known."""


class Building(Choice):
    """What decides which tokens come out."""

    sources: list[dict[str, Any]]
    """Where the texts come from, as a recipe says it."""
    weights: list[float]
    """How many times an epoch goes through each source."""
    text: TextConfig
    """How they are cut."""
    selection: SelectionConfig | None
    """Which pairs are left out; None for running text."""
    seed: int
    """What is held out, and what tokens are learned from, follows from this."""
    holds_out: bool
    """Whether some of it is kept to validate on."""
    vocabulary_lines: PositiveInt
    """Most pairs, or lines, that tokenizers learn from."""
    shard_size: PositiveInt = SHARD_SIZE
    """Pairs, or lines, that become one shard."""

    def facts(self) -> dict[str, Any]:
        """What is written down, to know the tokens by."""
        return cutting_facts(self.model_dump(mode="json"))

    @property
    def is_of_text(self) -> bool:
        """Whether it is running text, and not pairs."""
        return self.selection is None


def cutting_facts(settings: Any) -> Any:
    """Settings as JSON, without those by which nothing is cut before a batch is made."""
    if isinstance(settings, dict):
        items = settings.items()
        return {name: cutting_facts(each) for name, each in items if name not in _LATER}
    return [cutting_facts(each) for each in settings] if isinstance(settings, list) else settings


class Builder:
    """Makes a folder of tokens, or what is missing of it. Only one may be at work in a folder.

    Texts are cut by the tokenizers that are given, or else by new ones, learned from a sample.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sequence[Source],
        settings: Building,
        *,
        tell: Tell,
        watch: Watch,
        text: TextPair | None = None,
        workers: int | None = None,
    ) -> None:
        self.folder = folder
        self.sources = sources
        self.settings = settings
        self.tell = tell
        self.watch = watch
        self.text = text
        self.workers = workers or available_cores()

    def build(self) -> Prepared:
        """Make all that is not there yet, and open it."""
        with explaining_failures(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)
        plan, is_complete = self._read_plan() or (self._make_plan(), False)
        missing = self._missing(plan)
        if missing or not is_complete:
            self._cut(plan, missing)
            self._write_manifest(plan, is_complete=True)
        prepared = open_prepared(self.folder, verify=False)  # it just has been
        if not self.settings.is_of_text:
            refuse_nothing_left(prepared.report(), at=_AT)
        return prepared

    def _read_plan(self) -> tuple[Plan, bool] | None:
        """Read what was planned before; None if nothing was, or if it cannot be trusted."""
        if not (self.folder / MANIFEST).exists():
            return None
        try:
            there = read_manifest(self.folder).get(PREPARED, {})
        except DamagedRunError as error:
            self.tell(f"{error.at}: {error.problem}; the data is read anew")
            return None
        _refuse_other_settings(self.folder, there.get("settings"), self.settings.facts())
        shards = [ShardPlan(*each) for each in there["shards"]]
        return Plan(there["num_rows"], there["held_out"], shards), there["complete"]

    def _make_plan(self) -> Plan:
        size = 0 if self.text else self.settings.vocabulary_lines
        reservoir = Reservoir[Any](size, seed=self.settings.seed)
        selection = self.settings.selection
        is_watched = selection is not None and selection.duplicates == "drop"
        # Named so that `sweep` clears it away after a kill.
        with TemporaryDirectory(prefix=".writing-", dir=self.folder) as temporary:
            hashes = HashFiles(Path(temporary)) if is_watched else None
            tally = self._survey(reservoir, hashes)
            held_out = self._hold_out(tally.rows) if self.settings.holds_out else []
            if hashes is not None:
                with replacing(self.folder / REPEATS) as path:
                    hashes.write_repeats(path, held_out)
        text = self.text or self._learn(reservoir.without(held_out), tally.rows)
        with replacing(self.folder / TEXT) as path:
            path.mkdir()
            text.save(path)
        plan = Plan(tally.rows, held_out, tally.plans)
        self._write_manifest(plan, is_complete=False)
        return plan

    def _survey(self, reservoir: Reservoir[Any], hashes: HashFiles | None) -> Tally:
        tally = Tally()
        for stretch in stretches(self.sources, self.settings.shard_size):
            tally.add(stretch)
            reservoir.add(stretch.first, stretch.examples)
            if hashes is not None:
                hashes.add(hash_pairs(stretch.examples))
            self.watch("reading", tally.rows, None)
        return tally

    def _hold_out(self, count: int) -> list[int]:
        at = "; ".join(source.describe() for source in self.sources)
        if self.settings.is_of_text:
            return list(held_out_lines(count, at=at))
        return held_out_rows(count, seed=self.settings.seed, at=at)

    def _learn(self, sample: list[Any], count: int) -> TextPair:
        kind = "lines" if self.settings.is_of_text else "pairs"
        self.tell(f"learning the vocabulary from {len(sample)} of {count} {kind}")
        self.watch("learning the vocabulary", 0, None)
        sides = (sample, []) if self.settings.is_of_text else zip(*sample, strict=True)
        return self.settings.text.train(*sides)

    def _missing(self, plan: Plan) -> dict[int, str]:
        """Name the shards that are to be made, each with the key by which it will be known."""
        keys = self._keys(plan)
        folders = [self.folder / shard_name(number) for number in range(len(keys))]
        found = in_threads(_key_of, folders)
        for folder, key in zip(folders, found, strict=True):
            if isinstance(key, DamagedRunError):
                self.tell(f"{key.at}: {key.problem}; {folder.name} is made anew")
        return {number: key for number, key in enumerate(keys) if found[number] != key}

    def _keys(self, plan: Plan) -> list[str]:
        """A shard is known by all that it was made of and made by."""
        made_by = [FORMAT, self.settings.facts()["selection"], digest_of(self.folder / TEXT)]
        repeats, first, keys = self._repeats(), 0, list[str]()
        for number, shard in enumerate(plan.shards):
            end = first + shard.rows
            held_out = within(plan.held_out, first, end)
            repeated = _digest(repeats[first:end].tobytes())
            made_of = [number == 0, *shard, held_out, repeated]
            keys.append(_digest(json.dumps([made_by, made_of]).encode()))
            first = end
        return keys

    def _repeats(self) -> Flags:
        path = self.folder / REPEATS
        return np.memmap(path, np.uint8, "r") if path.exists() else np.empty(0, np.uint8)

    def _cut(self, plan: Plan, missing: dict[int, str]) -> None:
        """Go through the data and make the missing shards."""
        settings = self.settings
        text, selection = settings.text, settings.selection
        job = Job(text=text, folder=self.folder / TEXT, selection=selection, at=_AT)
        passing = Passing(
            self.sources,
            plan,
            missing,
            shard_size=settings.shard_size,
            repeats=self._repeats(),
            watch=lambda done: self.watch("cutting", done, plan.num_rows),
        )
        rows = sum(plan.shards[number].rows for number in missing)
        with cutting(job, max(1, min(self.workers, rows // CHUNK))) as cut:
            for number, cuts in groupby(passing.cut_by(cut), key=lambda each: each[0]):
                write_shard(
                    self.folder / shard_name(number),
                    passing.unchanged(number, (each for _, each in cuts)),
                    {"part": plan.shards[number].part, "key": missing[number]},
                    before=[EOS] if settings.is_of_text and number == 0 else (),
                )
        passing.refuse_changes()
        if plan.held_out:
            lines = (json.dumps(each, ensure_ascii=False) for each in passing.held_out)
            write_text(self.folder / HELD_OUT, "".join(f"{line}\n" for line in lines))

    def _write_manifest(self, plan: Plan, *, is_complete: bool) -> None:
        files = [path for path in (self.folder / TEXT).rglob("*") if path.is_file()]
        others = [REPEATS]
        if is_complete:
            others += [HELD_OUT, *(f"{shard_name(n)}/{MANIFEST}" for n in range(len(plan.shards)))]
        files += [path for name in others if (path := self.folder / name).exists()]
        prepared = {"format": FORMAT, "complete": is_complete, "settings": self.settings.facts()}
        write_manifest(self.folder, files, {PREPARED: {**prepared, **plan._asdict()}})


def _key_of(folder: Path) -> str | DamagedRunError | None:
    """The key of a shard; None if there is no shard, or what is wrong with it."""
    if not folder.exists():
        return None
    try:
        return read_manifest(folder)[FACTS]["key"]
    except DamagedRunError as error:
        return error


def digest_of(folder: Path) -> str:
    """Tell one folder of files from another."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [[path.relative_to(folder).as_posix(), _digest(path.read_bytes())] for path in files]
    return _digest(json.dumps(named).encode())


def _digest(contents: bytes) -> str:
    return blake2b(contents, digest_size=16).hexdigest()


def first_difference(there: Any, here: Any, at: str = "") -> tuple[str, Any, Any]:
    """Where two settings first differ, and what stands there."""
    if isinstance(there, dict) and isinstance(here, dict):
        name = next(name for name in [*here, *there] if here.get(name) != there.get(name))
        inner = f"{at}.{name}" if at else name
        return first_difference(there.get(name), here.get(name), inner)
    return at, there, here


def _refuse_other_settings(folder: Path, there: Any, here: dict[str, Any]) -> None:
    if there != here:
        at, old, new = first_difference(there or {}, here)
        raise RunError(
            str(folder),
            f"the folder holds tokens made with {at}={old}, but now it is {new}",
            "give the settings it was begun with to go on, or name another folder",
        )
