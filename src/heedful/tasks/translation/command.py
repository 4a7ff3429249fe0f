"""`heedful translate`: one output line per input line, in order; imports no torch.

The work is split into chunks of requests, which one process or several translate into lines.
Invariant: the lines of a chunk depend only on the chunk, as its start index seeds what is sampled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from heedful.errors import check, format_count
from heedful.tasks.command_line import (
    PARALLEL_FILES,
    Delimiter,
    EncodingName,
    EnsembleWith,
    OutputFile,
    PredictorLoader,
    check_local,
)
from heedful.tasks.text_input import SourceColumn
from heedful.tasks.translation.jobs import (
    WORKER_CHUNK_SIZE,
    OutputBlock,
    RequestChunk,
    ServerTranslationJob,
    TranslationJob,
)
from heedful.terminal import (
    Backend,
    BeamSize,
    Overrides,
    backend_overrides,
    echo,
    is_typed,
    prompt,
    with_progress,
)

if TYPE_CHECKING:
    from heedful.decoding.requests import Request, TooLong
    from heedful.tasks.translation.files import RequestFiles

OUTPUT_OPTIONS = {
    "attention": "--save-attention",
    "alignments": "--save-alignments",
    "scores": "--save-scores",
    "tree": "--search-tree",
}
_SEARCH_OPTIONS = ("--beam", "--n-best", "--constraints", "--search-tree")
_SERVER_OPTIONS = (
    *("--beam", "--n-best", "--constraints", "--json"),
    *("--source-column", "--delimiter"),
)
_DOCUMENT_OPTIONS = ("--beam", "--ensemble-with", "--set", "--backend")
_PARAMETERS = {
    "--beam": "beam",
    "--n-best": "n_best",
    "--constraints": "constraints",
    "--search-tree": "search_tree",
    "--force-target": "force_target",
    "--save-attention": "save_attention",
    "--save-alignments": "save_alignments",
    "--save-scores": "save_scores",
    "--json": "as_json",
    "--ensemble-with": "ensemble_with",
    "--set": "overrides",
    "--backend": "backend",
    "--source-column": "source_column",
    "--delimiter": "delimiter",
}
CHUNK_SIZE = 1024  # texts; sorted by length, they fill batches well

TextFile = Annotated[
    str, Argument(help="texts: lines, .tsv, .csv, .jsonl or .parquet; - is standard input")
]
NBest = Annotated[
    int | None,
    Option(
        "--n-best",
        "--nbest",
        min=1,
        help="outputs, and lines, per text; widens the beam",
        show_default="the recipe's",
    ),
]
ForceTarget = Annotated[
    str | None,
    Option(metavar="FILE", help="score these outputs instead of searching; one per line"),
]
Constraints = Annotated[
    str | None,
    Option(
        metavar="FILE", help="prefix, required and forbidden phrases of each output, as JSON lines"
    ),
]
JSONLines = Annotated[bool, Option("--json", help="print a JSON object for each text instead")]
SaveAttention = Annotated[Path | None, Option(help="also write attention weights as JSON lines")]
SaveAlignments = Annotated[Path | None, Option(help="also write word alignments such as 0-0 1-2")]
SaveScores = Annotated[Path | None, Option(help="also write scores and log-probabilities")]
SearchTree = Annotated[Path | None, Option(help="also write the search tree as JSON lines")]
AlignmentMethod = Annotated[
    str | None,
    Option(metavar="METHOD", help="argmax, symmetrized, or threshold=0.2", show_default="argmax"),
]
TooLongOption = Annotated[
    Literal["error", "skip", "cut"],
    Option(
        help="a text of more than decoding.max_source_length tokens: its output is empty (skip), "
        "its beginning is translated (cut), or nothing more is (error)"
    ),
]
NumWorkers = Annotated[int, Option(min=0, help="number of processes; 0: one per core")]
InputFormat = Annotated[
    Literal["lines", "document", "html"],
    Option(
        "--format",
        help="lines, or a document or HTML page, whose sentences are translated and the rest kept",
    ),
]


def translate(
    load: PredictorLoader,
    file: TextFile = "-",
    *,
    source_column: SourceColumn = None,
    delimiter: Delimiter = None,
    encoding: EncodingName = None,
    ensemble_with: EnsembleWith = None,
    beam: BeamSize = None,
    n_best: NBest = None,
    force_target: ForceTarget = None,
    constraints: Constraints = None,
    output: OutputFile = None,
    as_json: JSONLines = False,
    save_attention: SaveAttention = None,
    save_alignments: SaveAlignments = None,
    alignment_method: AlignmentMethod = None,
    save_scores: SaveScores = None,
    search_tree: SearchTree = None,
    too_long: TooLongOption = "skip",
    num_workers: NumWorkers = 1,
    backend: Backend = None,
    overrides: Overrides = None,
    input_format: InputFormat = "lines",
) -> None:
    """Translate lines: one output line per input line, in the same order.

    Lines from a pipe are translated as they arrive. Without a file, type them.

    Example: heedful translate runs/demo sentences.txt --beam 5 --num-workers 0
    Example: heedful translate runs/demo sentences.txt --n-best 10 -o out.txt
    Example: heedful translate runs/demo sentences.txt --device cpu --dtype bf16
    Example: heedful translate runs/de-en sentences.txt --backend ct2 --dtype int8
    Example: heedful translate runs/de-en page.html --format html -o page.en.html
    Example: echo "Caecilius est in horto." | heedful translate runs/demo
    Example: heedful translate demo sentences.txt --server http://127.0.0.1:8000
    """
    from heedful.tasks.translation.files import RequestFiles

    arguments = dict(locals())
    _check_options(arguments)
    outputs = {name: arguments[_PARAMETERS[flag]] for name, flag in OUTPUT_OPTIONS.items()}
    output_files: dict[str, Path] = {name: path for name, path in outputs.items() if path}
    request_files = RequestFiles(
        file, force_target, constraints, source_column, delimiter, encoding
    )
    output_types = ("json" if as_json else "text", *output_files)
    job = _build_job(arguments, output_types, request_files.text_input.location)
    if input_format != "lines":
        from heedful.tasks.translation.documents import translate_document

        translate_document(job, file, encoding, input_format, output)
        return
    _run_job(job, request_files, output_files, output=output, num_workers=num_workers)


def _build_job(
    arguments: Mapping[str, Any], output_types: tuple[str, ...], input_name: str
) -> TranslationJob:
    from heedful.decoding.word_alignment import get_aligner

    job_class = ServerTranslationJob if arguments["load"].server else TranslationJob
    return job_class(
        arguments["load"],
        output_types,
        get_aligner(arguments["alignment_method"] or "argmax", location="--alignment-method"),
        ensemble_with=tuple(arguments["ensemble_with"] or ()),
        overrides=(*(arguments["overrides"] or ()), *backend_overrides(arguments["backend"])),
        beam_size=arguments["beam"],
        n_best=arguments["n_best"],
        input_name=input_name,
        is_forced=arguments["force_target"] is not None,
        too_long=arguments["too_long"],
    )


def _check_options(arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for options that would have no effect."""
    used = [flag for flag, name in _PARAMETERS.items() if arguments[name] not in (None, False)]
    for option in filter(_SEARCH_OPTIONS.__contains__, used):
        message = "has no effect, because --force-target gives the outputs"
        hint = f"remove {option} or --force-target"
        check("--force-target" not in used, option, message, hint)
    message, hint = "has no effect without --save-alignments", "add --save-alignments FILE"
    is_used = arguments["alignment_method"] is None or "--save-alignments" in used
    check(is_used, "--alignment-method", message, hint)
    local = dict.fromkeys((option for option in used if option not in _SERVER_OPTIONS), True)
    check_local(arguments["load"], local)
    for option in used:
        message, hint = "works only with lines", f"remove {option} or --format"
        is_valid = arguments["input_format"] == "lines" or option in _DOCUMENT_OPTIONS
        check(is_valid, option, message, hint)


def _run_job(
    job: TranslationJob,
    request_files: RequestFiles,
    output_files: Mapping[str, Path],
    *,
    output: Path | None,
    num_workers: int,
) -> None:
    from heedful.parallel import worker_pool
    from heedful.tasks.translation import files

    files.check_single_stdin(request_files)
    options = {OUTPUT_OPTIONS[name]: path for name, path in output_files.items()}
    options |= {"--output": output} if output else {}
    files.check_distinct_files(options, request_files.files)
    num_texts = files.count_lines(request_files)
    requests = files.read_requests(request_files)
    typed = is_typed(request_files.texts)
    if typed:  # one by one: the next is asked for when this is answered
        num_processes, chunks = (
            1,
            number_chunks(files.fixed_size_chunks(prompt(requests), max_size=1)),
        )
    else:
        num_processes = choose_num_processes(num_workers, job.load, num_texts=num_texts)
        is_streamed = any(map(files.is_streamed, request_files.files))
        split = files.chunks_as_available if is_streamed else files.fixed_size_chunks
        chunk_size = CHUNK_SIZE if num_processes == 1 else WORKER_CHUNK_SIZE
        chunks = number_chunks(split(requests, max_size=chunk_size))
    with worker_pool(job, num_workers=num_processes) as map_chunks:
        results = map_chunks(chunks)
        # Wait for the first block: a failure must not empty the output files.
        blocks: Iterator[OutputBlock] = chain(list(islice(results, 1)), results)
        if not typed and (
            output or not sys.stdout.isatty()
        ):  # else the progress bar would cut through the lines
            blocks = with_progress(blocks, total=num_texts, count_of=attrgetter("num_texts"))
        with files.open_outputs(list(output_files.values()), output=output) as write:
            num_read = num_too_long = 0
            for block in blocks:
                write(block.parts)
                for report in block.reports:
                    echo(f"warning: {report}", err=True)
                num_read += block.num_texts
                num_too_long += len(block.reports)
    if num_too_long:
        echo(_format_too_long(num_too_long, num_read, job.too_long), err=True)


def _format_too_long(num_too_long: int, num_texts: int, too_long: TooLong) -> str:
    """Return the summary of the texts that are too long."""
    effect, other = ("cut", "skip") if too_long == "cut" else ("skipped", "cut")
    verb = "was" if num_too_long == 1 else "were"
    subject = f"{num_too_long} of {format_count(num_texts, 'text')} {verb}"
    hint = f"split long texts, or add --too-long {other} or --set decoding.max_source_length=N"
    return f"{subject} too long and {effect}\n  {hint}"


def number_chunks(chunks: Iterable[list[Request]]) -> Iterator[RequestChunk]:
    """Add the index of its first text, counted from 1, to each chunk."""
    start_index = 1
    for requests in chunks:
        yield RequestChunk(start_index, requests)
        start_index += len(requests)


def choose_num_processes(num_workers: int, load: PredictorLoader, *, num_texts: int | None) -> int:
    """Return the number of processes to start; 0 workers means one per core."""
    if num_workers == 1:
        return 1
    message = f"several processes cannot share the device {load.device_type!r}"
    hint = "remove --num-workers, or add --device cpu"
    check(load.device_type == "cpu", "--num-workers", message, hint)
    from heedful.parallel import available_cores

    max_processes = num_workers or available_cores()
    if num_texts is None:
        return max_processes
    return max(1, min(max_processes, ceil(num_texts / WORKER_CHUNK_SIZE)))


FILE_OPTIONS = PARALLEL_FILES
COMMANDS = (translate,)
