"""`heedful translate`: as many lines out as went in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Beam, Device, RunFolder, Settings, watched
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.cli.requests import Asked
    from heedful.cli.translating import Block, Translating


def translate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="texts, one on a line; - is standard input")] = "-",
    *,
    others: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="RUN", help="decide together with this run; repeatable"),
    ] = None,
    beam: Beam = None,
    nbest: Annotated[
        int | None,
        typer.Option(min=1, help="outputs, and lines, for each text", show_default="the recipe's"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="do not search: judge these outputs, one for each text"),
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
    attention: Annotated[
        Path | None, typer.Option(help="also write where each token looked, as JSON lines")
    ] = None,
    alignments: Annotated[
        Path | None, typer.Option(help="also write which word came from which: 0-0 1-2")
    ] = None,
    alignment: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="how: argmax, symmetrised, or threshold=0.2",
            show_default="argmax",
        ),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="also write scores and log-probabilities")
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(help="also write all that the search held, as JSON lines")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="processes that share the work; 0: as many as cores")
    ] = 1,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Translate lines: as many come out as went in, in the same order.

    Lines that come through a pipe are answered as they come.

    Example: heedful translate runs/demo sentences.txt --beam 5 --workers 0

    Example: echo "Caecilius est in horto." | heedful translate runs/demo --alignments links.txt
    """
    from heedful.cli.requests import Asked
    from heedful.cli.translating import Translating
    from heedful.data.lines import name_of
    from heedful.decoding.alignments import choose_aligner

    _refuse_search_for_what_is_given(target, beam, nbest, constraints, tree)
    _refuse_alignment_of_nothing(alignment, alignments)
    evidence = {"attention": attention, "alignments": alignments, "scores": scores, "tree": tree}
    paths = {kind: path for kind, path in evidence.items() if path is not None}
    job = Translating(
        run,
        ("json" if as_json else "text", *paths),
        choose_aligner(alignment or "argmax", at="--alignment"),
        others=tuple(others or ()),
        overrides=(*(settings or ()), *_overrides(beam=beam, nbest=nbest)),
        device=device,
        origin=name_of(file),
        is_forced=target is not None,
    )
    _stream(job, Asked(file, target, constraints), paths, workers=workers)


def _overrides(*, beam: int | None, nbest: int | None) -> Iterator[str]:
    chosen = {"decoding.beam": beam, "decoding.nbest": nbest}
    return (f"{name}={value}" for name, value in chosen.items() if value is not None)


def _stream(job: Translating, asked: Asked, evidence: Mapping[str, Path], *, workers: int) -> None:
    from heedful.cli.outlets import outlets, refuse_shared_files
    from heedful.cli.requests import arrives, count_lines, read_requests, refuse_shared_input
    from heedful.cli.translating import SHARED_WINDOW, WINDOW, num_processes, numbered
    from heedful.parallel import as_they_arrive, in_full, working

    refuse_shared_input(asked)
    refuse_shared_files({f"--{kind}": path for kind, path in evidence.items()}, asked.files)
    num_texts = count_lines(asked)
    count = num_processes(workers, device=job.device, num_texts=num_texts)
    cut = as_they_arrive if any(map(arrives, asked.files)) else in_full
    chunks = numbered(cut(read_requests(asked), most=WINDOW if count == 1 else SHARED_WINDOW))
    with working(job, chunks, count=count) as answers:
        blocks = _begun(answers)
        with outlets(list(evidence.values())) as write:
            for block in _shown(blocks, num_texts):
                write(block.parts)


def _begun(blocks: Iterator[Block]) -> Iterator[Block]:
    """Wait for the first: what cannot be translated at all must not empty any file."""
    first = list(islice(blocks, 1))
    return chain(first, blocks)


def _shown(blocks: Iterator[Block], total: int | None) -> Iterator[Block]:
    """Show progress, unless it would be drawn between the lines of a terminal."""
    if sys.stdout.isatty():
        return blocks
    return watched(blocks, total=total, size=attrgetter("num_texts"))


def _refuse_search_for_what_is_given(
    target: str | None,
    beam: int | None,
    nbest: int | None,
    constraints: str | None,
    tree: Path | None,
) -> None:
    searching = {"--beam": beam, "--nbest": nbest, "--constraints": constraints, "--tree": tree}
    for option, value in searching.items():
        if target is not None and value is not None:
            raise ConfigError(
                option,
                "says how outputs are searched for, and --target gives them",
                f"leave out {option} or --target",
            )


def _refuse_alignment_of_nothing(how: str | None, written: Path | None) -> None:
    if how is not None and written is None:
        raise ConfigError(
            "--alignment",
            "says how alignments are made, and none are written",
            "add --alignments FILE",
        )
