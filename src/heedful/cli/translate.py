"""`heedful translate`: as many lines out as went in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from heedful.cli.options import BeamSize, Device, Overrides, RunFolder, with_progress
from heedful.cli.output_formats import OutputFormat
from heedful.errors import ConfigError
from heedful.parallel import Job

if TYPE_CHECKING:
    from heedful.cli.request_files import RequestFiles
    from heedful.decoding.config import DecodingConfig
    from heedful.decoding.requests import Request
    from heedful.decoding.word_alignment import Aligner
    from heedful.tasks.translation.translator import Translator


# Translating as a job: chunks of requests become lines, in this process or in several.
#
# What comes of a chunk depends on the chunk alone: its number tells what is drawn by chance, and
# lines are made where the model is, so that only text travels between processes.

WINDOW = 1024  # texts of a chunk: sorted by length, they fill batches well
WORKER_WINDOW = 256  # the same where processes share the work, so that none waits long at the end


class RequestChunk(NamedTuple):
    """Requests that follow one another, and the number of the first."""

    start_index: int
    requests: list[Request]


class OutputBlock(NamedTuple):
    """What came of a chunk: for each kind of lines that was asked for, the lines as one text."""

    num_texts: int
    parts: list[str]


@dataclass(frozen=True)
class TranslationJob(Job[RequestChunk, OutputBlock]):
    """Translate with one run, or with several that decide together."""

    run: Path
    output_types: tuple[str, ...]
    aligner: Aligner
    ensemble_with: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    input_name: str = "text"
    is_forced: bool = False
    """Whether outputs are given, one for each text."""

    def setup(self, *, is_shared: bool) -> Callable[[RequestChunk], OutputBlock]:
        """Load the model; beside others it works with one thread."""
        import torch

        from heedful.runs import load_translator

        if is_shared:
            torch.set_num_threads(1)
        translator = load_translator(
            self.run, device=self.device, overrides=self.overrides, ensemble_with=self.ensemble_with
        )
        if "tree" in self.output_types:
            check_tree_supported(translator.decoding)
        notation = OutputFormat(1 if self.is_forced else translator.decoding.n_best, self.aligner)
        return lambda chunk: self._translate(translator, chunk, notation)

    def _translate(
        self, translator: Translator, chunk: RequestChunk, notation: OutputFormat
    ) -> OutputBlock:
        found = list(
            translator.stream(
                chunk.requests,
                location=self.input_name,
                start_index=chunk.start_index,
                need_tree="tree" in self.output_types,
            )
        )
        lines = (
            [line for each in found for line in notation.format_lines(kind, each)]
            for kind in self.output_types
        )
        return OutputBlock(len(found), ["".join(f"{line}\n" for line in part) for part in lines])


def check_tree_supported(decoding: DecodingConfig) -> None:
    """Only a search has a tree."""
    if decoding.sampling_setting:
        raise ConfigError(
            "--search-tree",
            f"only a beam has a tree, and outputs are drawn (decoding.{decoding.sampling_setting} is set)",
            f"leave out --search-tree, or add --set decoding.{decoding.sampling_setting}=null",
        )


def number_chunks(chunks: Iterable[list[Request]]) -> Iterator[RequestChunk]:
    """Say of each chunk how many texts came before it."""
    first = 1
    for requests in chunks:
        yield RequestChunk(first, requests)
        first += len(requests)


def choose_num_processes(requested: int, *, device: str, num_texts: int | None) -> int:
    """How many processes are worth starting; 0 asks for as many as there are cores."""
    if requested == 1:
        return 1
    from heedful.runs import resolve_device

    if (torch_device := resolve_device(device)).type != "cpu":
        raise ConfigError(
            "--num-workers",
            f"several processes cannot share the device {torch_device.type!r}",
            "leave --num-workers out, or add --device cpu",
        )
    most = requested or len(os.sched_getaffinity(0))
    return most if num_texts is None else max(1, min(most, ceil(num_texts / WORKER_WINDOW)))


def translate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="texts, one on a line; - is standard input")] = "-",
    *,
    ensemble_with: Annotated[
        list[Path] | None,
        typer.Option(
            "--ensemble-with", metavar="RUN", help="decide together with this run; repeatable"
        ),
    ] = None,
    beam: BeamSize = None,
    n_best: Annotated[
        int | None,
        typer.Option(min=1, help="outputs, and lines, for each text", show_default="the recipe's"),
    ] = None,
    force_target: Annotated[
        str | None,
        typer.Option(
            "--force-target",
            metavar="FILE",
            help="do not search: judge these outputs, one for each text",
        ),
    ] = None,
    constraints: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="what each output must, must not and is to begin with, as JSON"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print a JSON object for each text instead")
    ] = False,
    save_attention: Annotated[
        Path | None,
        typer.Option("--save-attention", help="also write where each token looked, as JSON lines"),
    ] = None,
    save_alignments: Annotated[
        Path | None,
        typer.Option("--save-alignments", help="also write which word came from which: 0-0 1-2"),
    ] = None,
    alignment_method: Annotated[
        str | None,
        typer.Option(
            "--alignment-method",
            metavar="HOW",
            help="how: argmax, symmetrised, or threshold=0.2",
            show_default="argmax",
        ),
    ] = None,
    save_scores: Annotated[
        Path | None, typer.Option("--save-scores", help="also write scores and log-probabilities")
    ] = None,
    search_tree: Annotated[
        Path | None,
        typer.Option("--search-tree", help="also write all that the search held, as JSON lines"),
    ] = None,
    num_workers: Annotated[
        int,
        typer.Option(
            "--num-workers", min=0, help="processes that share the work; 0: as many as cores"
        ),
    ] = 1,
    overrides: Overrides = None,
    device: Device = "auto",
) -> None:
    """Translate lines: as many come out as went in, in the same order.

    Lines that come through a pipe are answered as they come.

    Example: heedful translate runs/demo sentences.txt --beam 5 --num-workers 0

    Example: echo "Caecilius est in horto." | heedful translate runs/demo --save-alignments links.txt
    """
    from heedful.cli.request_files import RequestFiles
    from heedful.data.text_files import display_name
    from heedful.decoding.word_alignment import get_aligner

    _check_forced_decoding_options(force_target, beam, n_best, constraints, search_tree)
    _check_alignment_method(alignment_method, save_alignments)
    evidence = {
        "attention": save_attention,
        "alignments": save_alignments,
        "scores": save_scores,
        "tree": search_tree,
    }
    paths = {kind: path for kind, path in evidence.items() if path is not None}
    job = TranslationJob(
        run,
        ("json" if as_json else "text", *paths),
        get_aligner(alignment_method or "argmax", location="--alignment-method"),
        ensemble_with=tuple(ensemble_with or ()),
        overrides=(*(overrides or ()), *_overrides(beam=beam, n_best=n_best)),
        device=device,
        input_name=display_name(file),
        is_forced=force_target is not None,
    )
    _stream(job, RequestFiles(file, force_target, constraints), paths, num_workers=num_workers)


def _overrides(*, beam: int | None, n_best: int | None) -> Iterator[str]:
    chosen = {"decoding.beam_size": beam, "decoding.n_best": n_best}
    return (f"{name}={value}" for name, value in chosen.items() if value is not None)


def _stream(
    job: TranslationJob,
    request_files: RequestFiles,
    outputs: Mapping[str, Path],
    *,
    num_workers: int,
) -> None:
    from heedful.cli.output_formats import check_distinct_files, open_outputs
    from heedful.cli.request_files import (
        check_single_stdin,
        count_lines,
        is_streamed,
        read_requests,
    )
    from heedful.parallel import chunks_as_available, fixed_size_chunks, parallel_map

    check_single_stdin(request_files)
    check_distinct_files({f"--{kind}": path for kind, path in outputs.items()}, request_files.files)
    num_texts = count_lines(request_files)
    count = choose_num_processes(num_workers, device=job.device, num_texts=num_texts)
    cut = chunks_as_available if any(map(is_streamed, request_files.files)) else fixed_size_chunks
    chunks = number_chunks(
        cut(read_requests(request_files), max_size=WINDOW if count == 1 else WORKER_WINDOW)
    )
    with parallel_map(job, chunks, num_workers=count) as answers:
        blocks = _wait_for_first(answers)
        with open_outputs(list(outputs.values())) as write:
            for block in _with_progress(blocks, num_texts):
                write(block.parts)


def _wait_for_first(blocks: Iterator[OutputBlock]) -> Iterator[OutputBlock]:
    """Wait for the first: what cannot be translated at all must not empty any file."""
    first = list(islice(blocks, 1))
    return chain(first, blocks)


def _with_progress(blocks: Iterator[OutputBlock], total: int | None) -> Iterator[OutputBlock]:
    """Show progress, unless it would be drawn between the lines of a terminal."""
    if sys.stdout.isatty():
        return blocks
    return with_progress(blocks, total=total, count_of=attrgetter("num_texts"))


def _check_forced_decoding_options(
    force_target: str | None,
    beam: int | None,
    n_best: int | None,
    constraints: str | None,
    search_tree: Path | None,
) -> None:
    searching = {
        "--beam": beam,
        "--nbest": n_best,
        "--constraints": constraints,
        "--search-tree": search_tree,
    }
    for option, value in searching.items():
        if force_target is not None and value is not None:
            raise ConfigError(
                option,
                "says how outputs are searched for, and --force-target gives them",
                f"leave out {option} or --force-target",
            )


def _check_alignment_method(method: str | None, written: Path | None) -> None:
    if method is not None and written is None:
        raise ConfigError(
            "--alignment-method",
            "says how alignments are made, and none are written",
            "add --save-alignments FILE",
        )
