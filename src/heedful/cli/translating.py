"""Translating as a job: chunks of requests become lines, in this process or in several.

What comes of a chunk depends on the chunk alone: its number tells what is drawn by chance, and
lines are made where the model is, so that only text travels between processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from heedful.cli.translations import Notation
from heedful.errors import ConfigError
from heedful.parallel import Job

if TYPE_CHECKING:
    from heedful.decoding.alignments import Aligner
    from heedful.translator import DecodingConfig, Request, Translator

WINDOW = 1024  # texts of a chunk: sorted by length, they fill batches well
SHARED_WINDOW = 256  # the same where processes share the work, so that none waits long at the end


class Chunk(NamedTuple):
    """Requests that follow one another, and the number of the first."""

    first: int
    requests: list[Request]


class Block(NamedTuple):
    """What came of a chunk: for each kind of lines that was asked for, the lines as one text."""

    num_texts: int
    parts: list[str]


@dataclass(frozen=True)
class Translating(Job[Chunk, Block]):
    """Translate with one run, or with several that decide together."""

    run: Path
    kinds: tuple[str, ...]
    aligner: Aligner
    others: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    origin: str = "text"
    is_forced: bool = False
    """Whether outputs are given, one for each text."""

    def begin(self, *, is_shared: bool) -> Callable[[Chunk], Block]:
        """Load the model; beside others it works with one thread."""
        import torch

        from heedful.runs import load_translator

        if is_shared:
            torch.set_num_threads(1)
        translator = load_translator(
            self.run, device=self.device, overrides=self.overrides, others=self.others
        )
        if "tree" in self.kinds:
            refuse_tree_of_drawn(translator.decoding)
        notation = Notation(1 if self.is_forced else translator.decoding.nbest, self.aligner)
        return lambda chunk: self._translate(translator, chunk, notation)

    def _translate(self, translator: Translator, chunk: Chunk, notation: Notation) -> Block:
        found = list(
            translator.stream(
                chunk.requests,
                origin=self.origin,
                first=chunk.first,
                want_tree="tree" in self.kinds,
            )
        )
        lines = (
            [line for each in found for line in notation.lines(kind, each)] for kind in self.kinds
        )
        return Block(len(found), ["".join(f"{line}\n" for line in part) for part in lines])


def refuse_tree_of_drawn(decoding: DecodingConfig) -> None:
    """Only a search has a tree."""
    if decoding.drawing:
        raise ConfigError(
            "--tree",
            f"only a beam has a tree, and outputs are drawn (decoding.{decoding.drawing} is set)",
            f"leave out --tree, or add --set decoding.{decoding.drawing}=null",
        )


def numbered(chunks: Iterable[list[Request]]) -> Iterator[Chunk]:
    """Say of each chunk how many texts came before it."""
    first = 1
    for requests in chunks:
        yield Chunk(first, requests)
        first += len(requests)


def num_processes(asked: int, *, device: str, num_texts: int | None) -> int:
    """How many processes are worth starting; 0 asks for as many as there are cores."""
    if asked == 1:
        return 1
    from heedful.runs import pick_device

    if (place := pick_device(device)).type != "cpu":
        raise ConfigError(
            "--workers",
            f"several processes cannot share the device {place.type!r}",
            "leave --workers out, or add --device cpu",
        )
    most = asked or len(os.sched_getaffinity(0))
    return most if num_texts is None else max(1, min(most, ceil(num_texts / SHARED_WINDOW)))
