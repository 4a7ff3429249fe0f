"""Every result is complete: its names exist, its recipes load and its metrics are of their task."""

import pytest

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.evaluation.registry import ALL_METRICS
from heedful.results.config import ResultConfig, load_result, result_names
from heedful.results.runs import Plan
from heedful.results.summary import check_cell


@pytest.mark.parametrize("name", result_names())
def test_result_names_what_it_needs(name):
    result = load_result(name)
    assert result.title
    assert result.cells or (result.systems and result.metrics and result.claims + result.published)
    if result.data is not None:
        assert all(len(digest) == 64 for digest in result.data.files.values())
        assert result.data.get
        assert result.data.license
    for row in result.published:
        assert row.source
        assert set(row.values) <= set(result.metrics)


@pytest.mark.wide
@pytest.mark.parametrize("name", result_names())
def test_recipes_of_result_load(name, tmp_path):
    result = load_result(name)
    plan = Plan(name, result, tmp_path, result.budget, tmp_path)
    trials = [trial for trial in plan.trials() if trial.seed == result.seeds[0]]
    for trial in trials:
        if trial.config.aligner is not None:
            continue
        task = trial.recipe().task.evaluation
        for column, metric in result.metrics.items():
            name = metric.metric or column
            known = [*task.test_metrics, *task.compared_scores, *ALL_METRICS]
            assert metric.window_loss or name in known, (trial.system, name)


def test_selection_is_never_by_the_test_set(tmp_path):
    for name in result_names():
        result = load_result(name)
        test = result.settings.get("data.test")
        if name != "shakespeare":  # says so
            assert not test or test != result.settings.get("data.dev"), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tittle": "x"}, "tittle"),
        (
            {"claims": [{"text": "c", "left": "a", "op": "<", "right": 1}]},
            "no system is called 'a'",
        ),
        (
            {"published": [{"system": "s", "values": {"wer": 1}, "source": "p", "read": "paper"}]},
            "no metric is called 'wer'",
        ),
    ],
)
def test_unknown_names_raise(change, message):
    with pytest.raises(ConfigError, match=message):
        validate_settings(ResultConfig, {"title": "t", **change}, location="mine")


def test_flops_column_is_arithmetic_in_13_of_14_cells():
    cells = load_result("deck-flops").cells
    agreeing = [cell.name for cell in cells if check_cell(cell)["agrees"]]
    assert (len(agreeing), len(cells)) == (13, 14)
