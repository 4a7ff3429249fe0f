"""`import`, `export`, `compress` and `distill`: models of other libraries, and smaller ones."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

from typer import Argument, Option

from heedful.cli.options import with_file_options
from heedful.tasks.command_line import EnsembleWith, Files, Split
from heedful.terminal import (
    Device,
    Overrides,
    Quiet,
    RunFolder,
    echo,
    parse_bytes,
    parse_languages,
    print_message,
    program_name,
    stderr_console,
    with_progress,
)

ModelToImport = Annotated[
    Path, Argument(metavar="FOLDER|FILE", help="model folder (Hugging Face, Eole), or a checkpoint")
]
RunToWrite = Annotated[Path, Option("--run", "-o", help="run folder to write")]


def import_(model: ModelToImport, *, run: RunToWrite, quiet: Quiet = False) -> None:
    """Import a model of another library as a run.

    A Hugging Face folder has config.json, model.safetensors (or shards with an index) and the
    files of its tokenizer. Pickled weights are never opened; checkpoints of JoeyNMT (.ckpt) and
    OpenNMT-py (.pt) are read without executing anything in them, and so are folders of Eole. The
    run is complete in itself: the folder is not needed afterwards. Everything is checked first: a
    model that is not understood is refused by name, and nothing is written.

    Example: heedful import opus-mt-en-de --run runs/opus-en-de
    Example: heedful import bart-large-cnn --run runs/bart
    Example: heedful import joey/best.ckpt --run runs/joey
    """
    from heedful.conversion.importing import import_run

    console = stderr_console(quiet=quiet)
    recipe = import_run(model, run, partial(print_message, console))
    next_command = recipe.task.next_command.format(run=quote(str(run)))
    echo(f"{run}: imported; try: {program_name()} {next_command}")


To = Annotated[str, Option("--to", metavar="FORMAT", help="format to write: see above")]
FolderToWrite = Annotated[Path, Option("--out", "-o", help="folder to write")]
StoredType = Annotated[
    str | None, Option(metavar="TYPE", help="page: fp32, fp16 or int8 weights; default: fp32")
]
Languages = Annotated[
    str | None, Option(metavar="de-en", help="argos: source and target; default: ends of the files")
]


def export(
    run: RunFolder,
    *,
    to: To,
    out: FolderToWrite,
    languages: Languages = None,
    dtype: StoredType = None,
    quiet: Quiet = False,
) -> None:
    r"""Export a run to another library.

    The folder carries the model and its tokenizers. Before it gets its name, it is opened again
    by the other library, and its outputs for sample texts are compared with those of the run.
    What a format cannot hold is said before anything is written.

    \b
    hf           a folder of Hugging Face's transformers: pip install 'heedful[hf]'
    ct2          a folder of CTranslate2: pip install 'heedful[ct2]'
    argos        a package for LibreTranslate: pip install 'heedful[argos]'
    onnx         graphs for onnxruntime: pip install 'heedful[onnx]'
    page         a page that runs the model by itself: pip install 'heedful[onnx]'
    safetensors  tensors, settings and tokenizers as files
    torch        programs of torch.export

    Example: heedful export runs/de-en --to hf --out de-en-hf
    Example: heedful export runs/de-en --to argos --languages de-en --out de-en-argos
    Example: heedful export runs/de-en --to page --dtype int8 --out de-en-page
    """
    from heedful.conversion.exporting import export_run

    console = stderr_console(quiet=quiet)
    pair = parse_languages(languages) if languages else None
    compared = export_run(
        run, to, out, partial(print_message, console), languages=pair, dtype=dtype
    )
    echo(f"{out}: exported; {compared}")


Precision = Annotated[
    Literal["fp16", "int8", "int4"], Option("--to", help="how weights are stored")
]


@with_file_options("test")
def compress(
    run: RunFolder,
    *,
    to: Precision = "int8",
    out: RunToWrite,
    files: Mapping[Split, Files],
    device: Device = "auto",
) -> None:
    """Write a run with compressed weights, and what that costs in scores.

    fp16 halves the weights; int8 and int4 store small integers and a scale for each row of a
    matrix. The run is used as any other: computation is as before. Scores are those of the given
    files, or of the test set of the recipe.

    Example: heedful compress runs/de --run runs/small --source test.de --target test.en
    Example: heedful compress runs/demo --to int4 --run runs/demo-int4
    """
    from heedful.experiment.compression import compress_run
    from heedful.experiment.evaluation import evaluate
    from heedful.runs import Run

    sizes = compress_run(run, out, to)
    echo(f"{out}: {sizes}")
    test_files: dict[str, Any] = {name: value for name, value in files["test"].items() if value}
    if Run(out).read_recipe().data.test is None and not test_files:
        command = f"{program_name()} evaluate {quote(str(out))} --baseline {quote(str(run))}"
        echo(f"To see what it costs, give test files: {command} ...")
        return
    scores = [evaluate(folder, device=device, **test_files) for folder in (run, out)]
    for before, after in zip(*scores, strict=True):
        change = after.value - before.value
        echo(f"{before.name:12} {before.value:.2f} -> {after.value:.2f} ({change:+.2f})")


SourceFiles = Annotated[list[str], Option("--source", metavar="FILE", help="texts; repeatable")]
TargetFiles = Annotated[
    list[str] | None,
    Option("--target", metavar="FILE", help="their translations; repeatable"),
]
StudentRun = Annotated[Path, Option("--run", "-o", help="run folder to write")]
StudentRecipe = Annotated[str, Option("--recipe", help="of the student: a name or a file")]
StudentSize = Annotated[str, Option(help="bytes of its weights and tokenizers")]
StudentPrecision = Annotated[
    Literal["fp32", "fp16", "int8", "int4"], Option(help="how its weights are saved")
]
TeacherBeam = Annotated[int, Option("--beam", min=1, help="hypotheses of the teacher's search")]


def distill(
    teacher: RunFolder,
    *,
    source: SourceFiles,
    target: TargetFiles = None,
    run: StudentRun,
    recipe: StudentRecipe = "default",
    size: StudentSize = "3MB",
    precision: StudentPrecision = "int8",
    beam: TeacherBeam = 5,
    ensemble_with: EnsembleWith = None,
    overrides: Overrides = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a small translator on what a larger one, or an ensemble, says.

    The teacher translates the texts with a beam; its outputs are what the student learns (Kim and
    Rush 2016). With --target it learns the one of the beam that is closest to the translation. The
    student is the default model for a CPU, LSTMs, or another --recipe: all of its sizes are in
    proportion to the largest hidden size that --size allows, with 16 subwords of each language for
    each unit. The same command resumes.

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
        recipe=recipe,
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
