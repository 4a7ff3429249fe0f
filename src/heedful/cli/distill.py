"""`heedful distill`: a small translator learns what a larger one says."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from typer import Option

from heedful.tasks.command_line import EnsembleWith
from heedful.terminal import (
    Device,
    Overrides,
    Quiet,
    RunFolder,
    echo,
    parse_bytes,
    program_name,
    stderr_console,
    with_progress,
)

SourceFiles = Annotated[list[str], Option("--source", metavar="FILE", help="texts; repeatable")]
TargetFiles = Annotated[
    list[str] | None,
    Option("--target", metavar="FILE", help="their translations; repeatable"),
]
StudentRun = Annotated[Path, Option("--run", "-o", help="run folder to write")]
Size = Annotated[str, Option(help="bytes of its weights and tokenizers")]
Precision = Annotated[
    Literal["fp32", "fp16", "int8", "int4"], Option(help="how its weights are saved")
]
TeacherBeam = Annotated[int, Option("--beam", min=1, help="hypotheses of the teacher's search")]


def distill(
    teacher: RunFolder,
    *,
    source: SourceFiles,
    target: TargetFiles = None,
    run: StudentRun,
    size: Size = "3MB",
    precision: Precision = "int8",
    beam: TeacherBeam = 5,
    ensemble_with: EnsembleWith = None,
    overrides: Overrides = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a small translator on what a larger one, or an ensemble, says.

    The teacher translates the texts with a beam; its outputs are what the student learns (Kim and
    Rush 2016). With --target it learns the one of the beam that is closest to the translation. The
    student is the default model for a CPU, LSTMs of the largest hidden size that --size allows,
    with 16 subwords of each language for each unit. The same command resumes.

    Example: heedful distill runs/de-en --source train.de --run runs/small
    Example: heedful distill runs/de-en --source train.de --target train.en --run small
    Example: heedful distill runs/1 --ensemble-with runs/2 --source train.de --run small
    """
    from heedful.experiment.distillation import distill as distill_run

    result = distill_run(
        teacher,
        run,
        source=source,
        target=target or (),
        max_bytes=parse_bytes(size, 1000),
        precision=precision,
        beam_size=beam,
        ensemble_with=ensemble_with or (),
        settings=overrides or (),
        device=device,
        console=stderr_console(quiet=quiet),
        with_progress=lambda outputs, total: with_progress(
            outputs, total=total, activity="translating"
        ),
    )
    state = result.stop_reason or f"saved at step {result.step}; the same command resumes"
    echo(f"{run}: {state}; try: {program_name()} translate {quote(str(run))}")
