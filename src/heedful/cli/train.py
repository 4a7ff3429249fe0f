"""Commands that write runs and their data, and `bench`: where the time of training goes."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from heedful.cli.options import SHORTCUTS, check_dev_files, with_file_options, with_shortcuts
from heedful.config import Override
from heedful.errors import check, format_count
from heedful.tasks.command_line import Files, Split
from heedful.tasks.registry import file_overrides
from heedful.terminal import (
    AsJSON,
    Device,
    Overrides,
    Quiet,
    RunFolder,
    echo,
    handle_stdout_errors,
    parse_bytes,
    program_name,
    stderr_console,
    with_progress,
)

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.recipes import Recipe
    from heedful.training.state import TrainingResult

RecipeName = Annotated[str, Argument(help="recipe name (see `heedful recipes`) or .yaml file")]
DEFAULT_RECIPE = "default"
_TRAINING_DATA = "data.train=", "data.train."


class TrackerName(StrEnum):
    """Experiment trackers."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


RunToWrite = Annotated[
    Path | None, Option("--run", "-o", help="folder to write", show_default="runs/RECIPE")
]
ReportTo = Annotated[list[TrackerName] | None, Option(help="also log to this tracker; repeatable")]
AutoFindBatchSize = Annotated[
    bool, Option("--auto-find-batch-size", help="use the largest batch that fits in memory")
]
Monolingual = Annotated[
    list[str] | None,
    Option(metavar="FILE", help="target texts to train on with back-translations; repeatable"),
]
Noise = Annotated[bool, Option("--noise", help="drop, blank and move words of back-translations")]
MemoryLimit = Annotated[str | None, Option(help="memory for --auto-find-batch-size, such as 4GiB")]


@with_shortcuts(*SHORTCUTS)
@with_file_options("train", "dev")
def train(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    files: Mapping[Split, Files],
    monolingual: Monolingual = None,
    noise: Noise = False,
    run: RunToWrite = None,
    overrides: Overrides = None,
    device: Device = "auto",
    report_to: ReportTo = None,
    auto_find_batch_size: AutoFindBatchSize = False,
    memory_limit: MemoryLimit = None,
    quiet: Quiet = False,
) -> None:
    """Train a model. The same command resumes an interrupted run.

    What is printed is also in RUN/train.log.

    Ctrl-C, SIGTERM or SIGUSR1 saves a checkpoint and exits with code 0, or 143 if saving failed.
    Too many non-finite losses in a row exit with code 3. To train a finished run further, raise
    its limit, such as --steps.

    Example: heedful train --source train.de --target train.en --run runs/de-en
    Example: heedful train --source train.de --target train.en --minutes 5
    Example: heedful train --pairs train.csv --source-column fr --target-column en
    Example: heedful train --source a.de --target a.en --monolingual more.en
    Example: heedful train reverse-tiny --set model.decoder.attention.score.type=dot
    Example: torchrun --nproc-per-node 2 -m -- heedful train latin-demo
    """
    from heedful.experiment.environment import ignore_stop_signals
    from heedful.experiment.plan import TrainingPlan, describe_default
    from heedful.experiment.train import run_plan
    from heedful.runs import Run, resolve_device
    from heedful.training.distributed import is_rank_zero

    folder, console = run or Path("runs") / Path(recipe).stem, stderr_console(quiet=quiet)
    load_recipe = partial(_load_recipe, recipe, files, overrides or [], device, folder=folder)
    _check_noise(noise=noise, monolingual=monolingual)
    try:
        if monolingual:
            add = partial(_add_back_translations, with_noise=noise, device=device, console=console)
            config = add(load_recipe, folder, monolingual)
        else:
            config = load_recipe()
        if recipe == DEFAULT_RECIPE and config.data.train and is_rank_zero():
            echo(describe_default(config), err=True)
        plan = TrainingPlan(
            config,
            Run(folder),
            resolve_device(device),
            console,
            report_to=[tracker.value for tracker in report_to or []],
            auto_find_batch_size=auto_find_batch_size or memory_limit is not None,
            memory_limit=None if memory_limit is None else parse_bytes(memory_limit),
        )
        result = run_plan(plan)
    except KeyboardInterrupt:  # which is answered already
        raise typer.Exit(130) from None
    ignore_stop_signals()  # the run is saved
    _print_result(folder, config, result)


def _check_noise(*, noise: bool, monolingual: Sequence[str] | None) -> None:
    message, hint = "works only with --monolingual", "add --monolingual FILE, or remove --noise"
    check(monolingual or not noise, "--noise", message, hint)


def _print_result(folder: Path, config: "Recipe", result: "TrainingResult") -> None:
    from heedful.training.distributed import is_rank_zero

    if not is_rank_zero():
        return
    if result.stop_reason:
        next_command = config.task.next_command.format(run=quote(str(folder)))
        echo(f"{folder}: {result.stop_reason}; try: {program_name()} {next_command}")
    else:
        echo(f"{folder}: saved at step {result.step}; the same command resumes")


def _load_recipe(
    recipe: str,
    files: Mapping[Split, Files],
    overrides: Sequence[str],
    device: str,
    data: Sequence[Override] = (),
    *,
    folder: Path,
) -> "Recipe":
    """Load a recipe with the files and settings of a command, and with other data if there is."""
    from heedful.experiment import load_training_recipe
    from heedful.runs import Run

    settings: list[str | Override] = [*file_overrides(files), *overrides, *data]
    run, train_files = Run(folder), files["train"]
    config = load_training_recipe(recipe, settings, device=device, files=train_files, run=run)
    check_dev_files(config, files)
    return config


def _add_back_translations(
    load_recipe: "Callable[[Sequence[Override]], Recipe]",
    folder: Path,
    monolingual: Sequence[str],
    *,
    with_noise: bool,
    device: str,
    console: "Console",
) -> "Recipe":
    """Return the recipe with back-translations; exit if training the reverse model was stopped."""
    from heedful.experiment.back_translation import add_back_translations

    def show_progress(outputs: Iterable[Any], total: int) -> Iterable[Any]:
        return with_progress(outputs, total=total, activity="translating")

    config = add_back_translations(
        load_recipe,
        folder,
        monolingual,
        with_noise=with_noise,
        device=device,
        console=console,
        with_progress=show_progress,
    )
    if config is None:
        echo(f"{folder}: the reverse model is saved; the same command resumes")
        raise typer.Exit
    return config


TokenizerFrom = Annotated[
    Path | None, Option(help="use the tokenizers of this run or folder of tokens", metavar="RUN")
]
TokenizingProcesses = Annotated[
    int | None, Option(min=1, help="processes that tokenize", show_default="one per core")
]
ShardSize = Annotated[
    int | None, Option(min=1, help="pairs or lines per shard", show_default="250000")
]


@with_file_options("train", "dev")
def prepare(
    recipe: RecipeName = DEFAULT_RECIPE,
    *,
    output_dir: Annotated[Path, Option("--output-dir", "-o", help="folder to write the tokens to")],
    files: Mapping[Split, Files],
    tokenizer_from: TokenizerFrom = None,
    num_workers: TokenizingProcesses = None,
    shard_size: ShardSize = None,
    overrides: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Tokenize data that is larger than memory, once.

    The same command resumes an interrupted one and rebuilds only damaged shards. To train on the
    tokens, set `data.train: {type: prepared, path: FOLDER}` in a recipe that has the `tokenizers`
    and `data.filtering` they were made with.

    Example: heedful prepare --source train.de --target train.en -o tokens/de-en
    """
    from heedful.data.text.dataset_builder import SHARD_SIZE
    from heedful.data.text.sharded_dataset import PreparedDataConfig
    from heedful.experiment import build_prepared_dataset, load_training_recipe
    from heedful.experiment.data_modules import print_source_warnings, require_training_data
    from heedful.experiment.pretrained_encoder import with_pretrained_model
    from heedful.runs import Run
    from heedful.storage.atomic import lock_folder

    settings: list[str | Override] = [*file_overrides(files), *(overrides or [])]
    config = load_training_recipe(recipe, settings, files=files["train"])
    config = with_pretrained_model(config, Run(output_dir))
    check_dev_files(config, files)
    require_training_data(config)
    message = "this data is already tokenized"
    hint = "name the texts that the tokens were made from"
    check(not isinstance(config.data.train, PreparedDataConfig), "data.train.type", message, hint)
    tokenizers = None
    if tokenizer_from is not None:
        folder = tokenizer_from / "tokenizers"
        message = f"there are no tokenizers in {tokenizer_from}"
        check(folder.is_dir(), "--tokenizer-from", message, "name a run, or a folder of tokens")
        tokenizers = config.tokenizers.load(folder)
    print_source_warnings(config, stderr_console())
    with lock_folder(output_dir, activity="preparing data", option="--output-dir"):
        prepared = build_prepared_dataset(
            config,
            output_dir,
            stderr_console(quiet=quiet),
            tokenizers=tokenizers,
            workers=num_workers,
            shard_size=shard_size or SHARD_SIZE,
        )
    num_shards, setting = len(prepared.shards), {"type": "prepared", "path": str(output_dir)}
    # The settings of `prepare` again, those of the training data replaced by the tokens.
    texts = [text for text in map(str, settings) if not text.startswith(_TRAINING_DATA)]
    texts.append(str(Override(("data", "train"), setting)))
    hint = " ".join([f"train {quote(recipe)}", *(f"--set {quote(text)}" for text in texts)])
    echo(f"{output_dir}: {format_count(num_shards, 'shard')}; try: {program_name()} {hint}")


RunFolders = Annotated[list[Path], Argument(help="folders written by `heedful train`")]
NumLast = Annotated[
    int | None, Option(min=1, help="average this many newest checkpoints of each run")
]
NumBest = Annotated[
    int | None, Option(min=1, help="average this many best checkpoints of each run")
]


def average(
    runs: RunFolders,
    *,
    output_dir: Annotated[Path, Option("--output-dir", "-o", help="folder to write")],
    num_last: NumLast = None,
    num_best: NumBest = None,
) -> None:
    """Write a run with the mean parameters of checkpoints, or of runs with equal initial ones.

    Example: heedful average runs/de-en --num-last 5 -o runs/de-en-averaged
    Example: heedful average runs/tuned-1 runs/tuned-2 -o runs/both
    """
    from heedful.experiment.checkpoint_averaging import average_checkpoints, averaging_warnings

    message = "given together with --num-last"
    check(num_last is None or num_best is None, "--num-best", message, "leave out one of the two")
    members = average_checkpoints(runs, output_dir, num_last=num_last, num_best=num_best)
    for member in members:
        score = "" if member.score is None else f", score {member.score:.4f}"
        echo(f"{member.folder} (step {member.step}{score})", err=True)
    for warning in averaging_warnings(members):
        echo(f"warning: {warning}", err=True)
    echo(f"{output_dir}: the mean of {format_count(len(members), 'model')}")


Seconds = Annotated[float, Option(min=0.1, help="time to warm up and measure")]


def bench(
    run: RunFolder,
    *,
    seconds: Seconds = 30.0,
    overrides: Overrides = None,
    device: Device = "auto",
    as_json: AsJSON = False,
) -> None:
    """Show where the time of training goes, and what would help; the run stays as it is.

    A step waits for its batch (data), computes (kernels), and spends the rest on launching and
    Python (host). Steps are measured after one of each batch shape has warmed up. Try other
    settings with --set.

    Example: heedful bench runs/de-en
    Example: heedful bench runs/de-en --set training.precision=bf16 --seconds 60
    """
    from heedful.experiment.bench import format_profile, profile_training, suggest_changes
    from heedful.runs import Run, resolve_device

    folder, local_device = Run(run), resolve_device(device)
    recipe = folder.read_recipe(overrides or ())
    result = profile_training(
        recipe, folder, device=local_device, seconds=seconds, console=stderr_console()
    )
    with handle_stdout_errors():
        if as_json:
            steps = {**result.steps._asdict(), "shares": result.steps.shares}
            fields = {
                "targets_per_second": result.steps.targets_per_second,
                **result._asdict(),
                "steps": steps,
                "shapes": result.shapes._asdict(),
                "advice": suggest_changes(result, recipe.training, local_device),
            }
            echo(json.dumps(fields, indent=2))
            return
        for line in format_profile(result, recipe, local_device):
            echo(line)
