"""`heedful.evaluate`: the scores of a run on a test set, as `heedful evaluate` prints them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from heedful.config import SettingsArgument, check_types
from heedful.evaluation.base import MetricScore, compute_score
from heedful.evaluation.registry import compared_texts, get_metrics
from heedful.experiment.plan import (
    DataArgument,
    PairsArgument,
    check_pair,
    check_path,
    is_path,
    name_files,
    python_names,
)
from heedful.experiment.test_sets import (
    ReferenceSet,
    check_gold_alignments,
    check_supported,
    metric_names,
    read_test_set,
    references_from_recipe,
)
from heedful.recipes import Recipe
from heedful.runs import Run, load
from heedful.tasks.registry import files_by_split
from heedful.terminal import DtypeName


@check_types
def evaluate(
    run: Path | str,
    *,
    data: DataArgument = None,
    metrics: Sequence[str] = (),
    settings: SettingsArgument = (),
    ensemble_with: Sequence[Path | str] = (),
    device: str | torch.device = "auto",
    dtype: DtypeName = "fp32",
    **files: PairsArgument | Sequence[str | Path],
) -> list[MetricScore]:
    """Return the scores of a run on a test set: the given files, or the test set of its recipe.

    `data` is as in `train`: files by the names of `heedful evaluate`, such as `source` and
    `target`, where `target` may be a list of references, or `labeled`; or pairs. `metrics` are by
    default those of the task; the other arguments are those of `load`.
    """
    predictor = load(
        run, device=device, dtype=dtype, settings=settings, ensemble_with=ensemble_with
    )
    recipe = Run.open(run).read_recipe(settings)
    named = name_files(data, files, lambda: recipe.task.data.file_options)
    pairs = None if is_path(named.get("pairs", "")) else named.pop("pairs")
    paths = {name: _to_paths(name, value) for name, value in named.items()}
    with python_names():
        test_files = files_by_split(paths, "test")["test"]
        if not recipe.task.evaluation.has_references:
            check_supported(recipe.task, {"--metrics": metrics, "--pairs": pairs})
            return predictor.evaluate(read_test_set(recipe, test_files)[1])
        is_read = pairs is None
        test = references_from_recipe(recipe, test_files) if is_read else _from_memory(pairs)
        return _score(recipe, predictor, test, metrics)


def _to_paths(name: str, value: Any) -> str | list[str]:
    if name == "target":
        return [check_path(name, path) for path in ([value] if is_path(value) else value)]
    return check_path(name, value)


def _from_memory(pairs: Any) -> ReferenceSet:
    checked = [check_pair(pair, index) for index, pair in enumerate(pairs)]
    references: list[tuple[str, ...]] = [(target,) for _, target in checked]
    return ReferenceSet("pairs", references, [source for source, _ in checked])


def _score(
    recipe: Recipe, predictor: Any, test: ReferenceSet, metrics: Sequence[str]
) -> list[MetricScore]:
    task = recipe.task
    names = metric_names(recipe, metrics, test)
    chosen = get_metrics(names, location="metrics", registry=task.evaluation.test_metrics)
    check_gold_alignments(names, None)
    outputs = task.evaluation.system_outputs(
        predictor, test.sources or [], test.references, lambda predictions, _: predictions
    )
    return [
        compute_score(
            metric,
            outputs.metric_inputs(metric),
            compared_texts(metric, test.references, test.sources),
        )
        for metric in chosen
    ]
