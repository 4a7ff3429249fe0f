import pytest

from heedful.comparison.budget import METRICS_FILE, Budget
from heedful.comparison.training import (
    PlannedRun,
    RunResult,
    TrainingRunJob,
    plan_runs,
    train_all,
    train_in_process,
    train_in_subprocess,
)
from heedful.recipes import load_recipe
from tests.commands import write_recipe
from tests.shape_checking import unchecked

BUDGET = Budget.parse("2steps")


@pytest.fixture
def plans(tmp_path):
    """A recipe that can be trained, and one that cannot: a dot product of unlike sizes."""
    recipe = str(write_recipe(tmp_path))
    unfit = ["model.decoder.attention.score.type=dot", "model.decoder.hidden_size=7"]
    return [
        PlannedRun(name, load_recipe(recipe, changes), tmp_path / "runs" / f"{name}-0")
        for name, changes in {"bad": unfit, "good": []}.items()
    ]


@pytest.fixture
def tagged(tmp_path):
    (tmp_path / "train.conll").write_text("Anna\tPER\nsees\tO\n\n" * 20)
    return str(tmp_path)


def planned_tasks(recipes, data, folder):
    plans = plan_runs(recipes, data, seeds=1, folder=folder, device="cpu")
    return [planned.recipe.task.name for planned in plans]


def test_default_is_the_default_recipe_for_the_data(tmp_path, tagged):
    assert planned_tasks(["default"], tagged, tmp_path) == ["tagging"]
    assert planned_tasks(["default", "bilstm-crf"], tagged, tmp_path) == ["tagging"] * 2
    assert planned_tasks(["default"], "seasonal", tmp_path) == ["forecasting"]
    assert planned_tasks(["default"], "latin", tmp_path) == ["translation"]


def test_failed_run_does_not_stop_the_others(plans):
    messages = []
    with unchecked():
        failures = train_all(plans, BUDGET, log_message=messages.append, train_run=train_in_process)
    ((name, run, message),) = failures
    assert (name, run) == ("bad", str(plans[0].folder))
    assert message == ("score.type: 'dot' needs equal sizes, but queries have 7 and keys 32")
    assert messages[0] == "run 1 of 2: bad, seed 0, for 2 steps"
    assert messages[1] == f"{run}: failed: {message}"
    assert messages[2].startswith("run 2 of 2: good, seed 0, for 2 steps; about ")
    assert messages[2].endswith(" left")


def test_finished_run_is_not_trained_again(plans):
    with unchecked():
        train_all(plans[1:], BUDGET, log_message=lambda line: None, train_run=train_in_process)
    before = (plans[1].folder / METRICS_FILE).read_bytes()
    messages, trained_names = [], []

    def train_run(planned, budget, device):
        trained_names.append(planned.name)
        return RunResult(True)

    assert train_all(plans, BUDGET, log_message=messages.append, train_run=train_run) == []
    assert trained_names == ["bad"]
    assert messages[0] == "already trained: 1 of 2 runs"
    assert (plans[1].folder / METRICS_FILE).read_bytes() == before


def test_interruption_leaves_the_remaining_runs(plans):
    trained_names = []

    def train_run(planned, budget, device):
        trained_names.append(planned.name)
        return RunResult(False)

    failures = train_all(plans, BUDGET, log_message=trained_names.append, train_run=train_run)
    assert failures is None
    assert trained_names == ["run 1 of 2: bad, seed 0, for 2 steps", "bad"]


def test_remaining_time_follows_from_a_time_budget(plans):
    messages = []
    train_all(
        plans,
        Budget.parse("2m"),
        log_message=messages.append,
        train_run=lambda planned, budget, device: RunResult(True),
    )
    assert messages[0] == "run 1 of 2: bad, seed 0, for 2 minutes; about 4 min left"


@pytest.mark.faults
def test_error_in_the_child_process_raises(plans):
    ended = train_in_subprocess(plans[0], BUDGET, "cpu")
    assert ended == (
        False,
        "score.type: 'dot' needs equal sizes, but queries have 7 and keys 32",
    )


def test_any_exception_in_the_child_becomes_a_message(plans, capsys):
    train = TrainingRunJob(Budget.parse("2steps"), "cpu").setup(is_shared=False)
    is_finished, message = train(plans[1]._replace(recipe=None))
    assert not is_finished
    assert message.startswith("AttributeError: ")
    assert "Traceback" in capsys.readouterr().err
