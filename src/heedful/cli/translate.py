"""`heedful translate`: one output line per input line, in order.

The work is split into chunks of requests, which one process or several translate into lines.
Invariant: the lines of a chunk depend on the chunk alone, as its start index seeds what is sampled.
"""

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
from heedful.errors import check
from heedful.parallel import WorkerJob

if TYPE_CHECKING:
    from heedful.cli.request_files import RequestFiles
    from heedful.decoding.requests import Request
    from heedful.decoding.word_alignment import Aligner
    from heedful.tasks.translation.translator import Translator

CHUNK_SIZE = 1024  # texts; sorted by length, they fill batches well
WORKER_CHUNK_SIZE = 256  # with several processes, so that none waits long at the end


class RequestChunk(NamedTuple):
    """Consecutive requests, and the index of the first."""

    start_index: int
    requests: list[Request]


class OutputBlock(NamedTuple):
    """The lines of a chunk, as one text per output type."""

    num_texts: int
    parts: list[str]


@dataclass(frozen=True)
class TranslationJob(WorkerJob[RequestChunk, OutputBlock]):
    """Translate chunks with one run or an ensemble of runs."""

    run: Path
    output_types: tuple[str, ...]
    aligner: Aligner
    ensemble_with: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    input_name: str = "text"
    is_forced: bool = False
    """Whether every text has a given target."""

    def setup(self, *, is_shared: bool) -> Callable[[RequestChunk], OutputBlock]:
        """Load the model; next to other processes it uses one thread."""
        import torch

        from heedful.decoding.config import check_search_tree
        from heedful.runs import load_translator

        if is_shared:
            torch.set_num_threads(1)
        translator = load_translator(
            self.run, device=self.device, overrides=self.overrides, ensemble_with=self.ensemble_with
        )
        if "tree" in self.output_types:
            check_search_tree(translator.decoding, "--search-tree")
        output_format = OutputFormat(
            1 if self.is_forced else translator.decoding.n_best, self.aligner
        )
        return lambda chunk: self._translate(translator, chunk, output_format)

    def _translate(
        self, translator: Translator, chunk: RequestChunk, output_format: OutputFormat
    ) -> OutputBlock:
        translations = list(
            translator.predict(
                chunk.requests,
                location=self.input_name,
                start_index=chunk.start_index,
                need_tree="tree" in self.output_types,
            )
        )
        parts = [
            "".join(
                f"{line}\n"
                for translation in translations
                for line in output_format.format_lines(output_type, translation)
            )
            for output_type in self.output_types
        ]
        return OutputBlock(len(translations), parts)


def number_chunks(chunks: Iterable[list[Request]]) -> Iterator[RequestChunk]:
    """Add the index of its first text, counted from 1, to every chunk."""
    start_index = 1
    for requests in chunks:
        yield RequestChunk(start_index, requests)
        start_index += len(requests)


def choose_num_processes(num_workers: int, *, device: str, num_texts: int | None) -> int:
    """Return the number of processes to start; 0 workers means one per core."""
    if num_workers == 1:
        return 1
    from heedful.runs import resolve_device

    device_type = resolve_device(device).type
    check(
        device_type == "cpu",
        "--num-workers",
        f"several processes cannot share the device {device_type!r}",
        "remove --num-workers, or add --device cpu",
    )
    max_processes = num_workers or len(os.sched_getaffinity(0))
    if num_texts is None:
        return max_processes
    return max(1, min(max_processes, ceil(num_texts / WORKER_CHUNK_SIZE)))


def translate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="texts, one per line; - is standard input")] = "-",
    *,
    ensemble_with: Annotated[
        list[Path] | None,
        typer.Option(
            "--ensemble-with", metavar="RUN", help="add this run to the ensemble; repeatable"
        ),
    ] = None,
    beam: BeamSize = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            "--nbest", min=1, help="outputs, and lines, per text", show_default="the recipe's"
        ),
    ] = None,
    force_target: Annotated[
        str | None,
        typer.Option(
            "--force-target",
            metavar="FILE",
            help="score these outputs instead of searching; one per line",
        ),
    ] = None,
    constraints: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="prefix, required and forbidden phrases of each output, as JSON lines",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print a JSON object for each text instead")
    ] = False,
    save_attention: Annotated[
        Path | None,
        typer.Option("--save-attention", help="also write attention weights as JSON lines"),
    ] = None,
    save_alignments: Annotated[
        Path | None,
        typer.Option("--save-alignments", help="also write word alignments such as 0-0 1-2"),
    ] = None,
    alignment_method: Annotated[
        str | None,
        typer.Option(
            "--alignment-method",
            metavar="METHOD",
            help="argmax, symmetrized, or threshold=0.2",
            show_default="argmax",
        ),
    ] = None,
    save_scores: Annotated[
        Path | None, typer.Option("--save-scores", help="also write scores and log-probabilities")
    ] = None,
    search_tree: Annotated[
        Path | None,
        typer.Option("--search-tree", help="also write the search tree as JSON lines"),
    ] = None,
    num_workers: Annotated[
        int, typer.Option("--num-workers", min=0, help="number of processes; 0: one per core")
    ] = 1,
    overrides: Overrides = None,
    device: Device = "auto",
) -> None:
    """Translate lines: one output line per input line, in the same order.

    Lines from a pipe are translated as they arrive.

    Example: heedful translate runs/demo sentences.txt --beam 5 --num-workers 0

    Example: echo "Caecilius est in horto." | heedful translate runs/demo --save-scores scores.txt
    """
    from heedful.cli.request_files import RequestFiles
    from heedful.data.text_files import display_name
    from heedful.decoding.word_alignment import get_aligner

    search_options = {
        "--beam": beam,
        "--nbest": n_best,
        "--constraints": constraints,
        "--search-tree": search_tree,
    }
    for option, value in search_options.items():
        check(
            force_target is None or value is None,
            option,
            "has no effect, because --force-target gives the outputs",
            f"remove {option} or --force-target",
        )
    check(
        alignment_method is None or save_alignments is not None,
        "--alignment-method",
        "has no effect without --save-alignments",
        "add --save-alignments FILE",
    )
    files = {
        "attention": ("--save-attention", save_attention),
        "alignments": ("--save-alignments", save_alignments),
        "scores": ("--save-scores", save_scores),
        "tree": ("--search-tree", search_tree),
    }
    settings = {"decoding.beam_size": beam, "decoding.n_best": n_best}
    job = TranslationJob(
        run,
        ("json" if as_json else "text", *(name for name, (_, path) in files.items() if path)),
        get_aligner(alignment_method or "argmax", location="--alignment-method"),
        ensemble_with=tuple(ensemble_with or ()),
        overrides=(
            *(overrides or ()),
            *(f"{name}={value}" for name, value in settings.items() if value is not None),
        ),
        device=device,
        input_name=display_name(file),
        is_forced=force_target is not None,
    )
    output_files = {option: path for option, path in files.values() if path is not None}
    request_files = RequestFiles(file, force_target, constraints)
    _stream(job, request_files, output_files, num_workers=num_workers)


def _stream(
    job: TranslationJob,
    request_files: RequestFiles,
    output_files: Mapping[str, Path],
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
    from heedful.parallel import chunks_as_available, fixed_size_chunks, worker_pool

    check_single_stdin(request_files)
    check_distinct_files(output_files, request_files.files)
    num_texts = count_lines(request_files)
    num_processes = choose_num_processes(num_workers, device=job.device, num_texts=num_texts)
    split = chunks_as_available if any(map(is_streamed, request_files.files)) else fixed_size_chunks
    chunk_size = CHUNK_SIZE if num_processes == 1 else WORKER_CHUNK_SIZE
    chunks = number_chunks(split(read_requests(request_files), max_size=chunk_size))
    with worker_pool(job, num_workers=num_processes) as map_chunks:
        results = map_chunks(chunks)
        # Wait for the first block: a failure must not empty the output files.
        blocks: Iterator[OutputBlock] = chain(list(islice(results, 1)), results)
        if not sys.stdout.isatty():  # else the progress bar would cut through the lines
            blocks = with_progress(blocks, total=num_texts, count_of=attrgetter("num_texts"))
        with open_outputs(list(output_files.values())) as write:
            for block in blocks:
                write(block.parts)
