"""The lists `heedful runs`, of the runs in a folder and how far each has come, and `recipes`.

`runs` reads small files only and verifies nothing: a damaged run is listed by what can be read.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from heedful.errors import ConfigError, check, format_count
from heedful.terminal import AsJSON, echo, figure_option, handle_stdout_errors

FoldersOfRuns = Annotated[Path, Argument(help="folder with runs, or with folders of them")]
_MAX_DEPTH = 3  # a run, a folder of runs, a comparison with its folder of runs


def runs(folder: FoldersOfRuns = Path("runs"), *, as_json: AsJSON = False) -> None:
    """List the runs in a folder: recipe, step, best score, state and date.

    The state is `training`, `interrupted` (the same command resumes), `no checkpoint` (a new
    command may start over), or why training ended. The best score is that of the dev data, by
    the metric that chooses the best checkpoint; the date is that of the last change.

    Example: heedful runs
    Example: heedful runs comparison
    """
    check(folder.is_dir(), str(folder), "no such folder", "name a folder that contains runs")
    os.listdir(folder)  # an error if that is forbidden, which glob skips
    summaries = list(map(summarize_run, find_runs(folder)))
    hint = "name a folder that contains runs, or write one with `heedful train`"
    check(summaries, str(folder), "there are no runs here", hint)
    with handle_stdout_errors():
        if as_json:
            echo(json.dumps([summary._asdict() for summary in summaries], indent=2))
            return
        header = ("run", "recipe", "trained", "best dev score", "state", "last change")
        rows = [header, *(summary.cells() for summary in summaries)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
            echo("  ".join(cells).rstrip())


class RunSummary(NamedTuple):
    """How far a run has come."""

    run: str
    recipe: str
    step: int
    metric: str
    best_score: float | None  # None before the first validation
    state: str
    date: str  # of the last entry in its logs

    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table, numbers with their units."""
        score = "" if self.best_score is None else f"{self.metric} {self._format_score()}"
        return self.run, self.recipe, format_count(self.step, "step"), score, self.state, self.date

    def _format_score(self) -> str:
        from heedful.tasks.registry import all_metrics

        spec = all_metrics().get(self.metric)
        is_fraction = spec is not None and spec.unit == "fraction"
        return f"{self.best_score:{'.1%' if is_fraction else '.4g'}}"


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the run folders in a folder, or the folder itself, by name."""
    for depth in range(_MAX_DEPTH + 1):
        for config in sorted(folder.glob("/".join([*["*"] * depth, "config.yaml"]))):
            if (config.parent / "tokenizers").is_dir():
                yield config.parent


def summarize_run(run: Path) -> RunSummary:
    """Read how far a run has come."""
    from heedful.config import flatten_settings, read_settings
    from heedful.storage.atomic import is_locked
    from heedful.storage.json_files import read_json_lines

    try:
        settings = dict(flatten_settings(read_settings(run / "config.yaml")))
    except ConfigError:
        settings = {}
    log = run / "metrics.jsonl"
    entries = read_json_lines(log)
    step, stop_reason = _last_checkpoint(run)
    state = "training" if is_locked(run) else stop_reason
    metric = str(settings.get("training.metric_for_best_model", "loss"))
    return RunSummary(
        run=str(run),
        recipe=str(settings.get("info.name", "")),
        step=int(max([step, *_numbers(entries, "step")])),
        metric=metric,
        best_score=_best_score(entries, metric),
        state=state,
        date=f"{datetime.fromtimestamp(max(_times(run, log))):%Y-%m-%d %H:%M}",
    )


def _times(run: Path, log: Path) -> list[float]:
    return [path.stat().st_mtime for path in (run / "config.yaml", log) if path.exists()]


def _last_checkpoint(run: Path) -> tuple[int, str]:
    """Return the step of the newest checkpoint and the state it describes."""
    from heedful.storage.json_files import read_json

    for folder in sorted((run / "checkpoints").glob("step-*"), reverse=True):
        try:
            progress = read_json(folder / "progress.json")
            return int(folder.name.removeprefix("step-")), progress["stop_reason"] or "interrupted"
        except (OSError, ValueError, TypeError, KeyError):  # damaged: the one before counts
            continue
    return 0, "finished" if (run / "manifest.json").exists() else "no checkpoint"


def _best_score(entries: list[dict[str, Any]], metric: str) -> float | None:
    from heedful.tasks.registry import all_metrics

    validations = [entry for entry in entries if entry.get("type") == "validation"]
    scores = _numbers(validations, metric)
    spec = all_metrics().get(metric)
    best = max if spec is not None and spec.higher_is_better else min
    return best(scores) if scores else None


def _numbers(entries: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    from heedful.inspection.training_curves import as_finite_float

    values = (as_finite_float(entry.get(name)) for entry in entries)
    return [value for value in values if value is not None]


def recipes(
    name: Annotated[str | None, Argument(help="recipe or file to print, with all settings")] = None,
    schema: Annotated[
        bool, Option("--schema", help="print the JSON Schema of every setting")
    ] = False,
    figures: Annotated[
        list[Path] | None, figure_option("draw the modules of the model, and the data flow")
    ] = None,
) -> None:
    """List the recipes, print or draw one, or print the JSON Schema for editors.

    A printed recipe has all settings, with their help as comments. A file that begins with
    `extends: NAME` needs only the settings that it changes.

    Example: heedful recipes
    Example: heedful recipes reverse-tiny > mine.yaml
    Example: heedful recipes bahdanau-2015 --svg bahdanau.svg
    """
    from heedful.config import to_commented_yaml
    from heedful.recipes import Recipe, load_recipe
    from heedful.recipes.recipe import recipe_groups

    if figures:
        message, hint = "draws one recipe", "name it: heedful recipes bahdanau-2015 --svg FILE"
        check(name is not None, "--svg", message, hint, ConfigError)
        _draw_recipe(str(name), figures)
        return
    with handle_stdout_errors():
        if schema:
            echo(json.dumps(Recipe.model_json_schema(), indent=2))
            return
        if name:
            echo(to_commented_yaml(load_recipe(name)), nl=False)
            return
        rows = [(system, ", ".join(variants)) for system, variants in recipe_groups()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for system, variants in rows:
            summary = load_recipe(system).info.summary
            echo(f"{system:<{widths[0]}}  {variants:<{widths[1]}}  {summary}")
        echo(
            "\nThe second column lists variants, as in bahdanau-2015-small. A recipe with a year\n"
            "has the sizes of its paper, and comments where it differs; others have our sizes.\n"
            "Small variants are for minutes on a CPU."
        )


def trace_architecture(recipe: Any) -> Any:
    """Return the blocks and the data flow of a recipe's model, built without its parameters."""
    import torch

    from heedful.experiment.flops import FlopCounter
    from heedful.inspection.architecture import VOCABULARY, read_architecture, record_calls
    from heedful.tasks.task_data import BatchShape, VocabSizes

    sizes = VocabSizes(VOCABULARY, VOCABULARY)
    with torch.device("meta"):
        model = recipe.task.build_model(recipe, sizes).train()
        batch = recipe.task.data.dummy_batch(recipe.model, sizes, BatchShape(2, 2), 2)
    calls = record_calls(model)
    with FlopCounter():  # which indexes by masks on the meta device
        output = model(batch)
    results = [output.log_probs, *output.auxiliary_losses.values()]
    return read_architecture(model, results, calls)


def _draw_recipe(name: str, figures: list[Path]) -> None:
    from heedful.inspection.architecture_drawing import render_svg
    from heedful.plotting.svg import save_drawings
    from heedful.recipes import load_recipe

    drawn = trace_architecture(load_recipe(name))
    save_drawings(figures, lambda: render_svg(drawn, title=name))
