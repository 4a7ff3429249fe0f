"""Averages: runs are made by hand here, for what was learned has no part in a mean."""

import pytest
import torch

from heedful.errors import CorruptRunError, RunError
from heedful.experiment.checkpoint_averaging import (
    average_checkpoints,
    average_state_dicts,
    averaging_warnings,
)
from heedful.recipes import load_recipe
from heedful.runs import Run, load
from heedful.storage.atomic import remove_path
from heedful.storage.manifest import read_and_verify_manifest
from heedful.storage.state_dict import unique_weights
from heedful.training.checkpoints import (
    CheckpointConfig,
    CheckpointManager,
    Snapshot,
    list_checkpoints,
)
from tests.commands import write_recipe

pytestmark = pytest.mark.wide

LINES = ["a b c", "d e", "f"]
KEEP_ALL = CheckpointConfig(keep_last=100)


def begin(folder, *settings, lines=LINES):
    """A run, its recipe, and a model with weights of its own."""
    recipe = load_recipe(str(write_recipe(folder.parent / "recipe")), list(settings))
    text = recipe.tokenizers.train(lines, lines)
    run = Run(folder)
    run.initialize(recipe, text)
    return run, recipe.model.build(
        source_vocab_size=len(text.source), target_vocab_size=len(text.target)
    )


def drawn(model, seed):
    """Weights drawn by a seed."""
    generator = torch.Generator().manual_seed(seed)
    named = unique_weights(model).items()
    return {name: torch.randn(weight.shape, generator=generator) for name, weight in named}


def published(folder, seed, *settings, lines=LINES):
    run, model = begin(folder, *settings, lines=lines)
    weights = drawn(model, seed)
    run.save_model(weights, step=10 * seed)
    return folder, weights


SCORES = {10: 3.0, 20: None, 30: 1.0, 40: 2.0, 50: 1.5}


@pytest.fixture
def checkpointed(tmp_path):
    """A run with five checkpoints, and their weights by step."""
    run, model = begin(tmp_path / "run")
    weights = {step: drawn(model, step) for step in SCORES}
    run.save_model(weights[30], step=30)
    checkpoints = CheckpointManager(run.checkpoints, KEEP_ALL, print)
    for step, score in SCORES.items():
        checkpoints.save(Snapshot(step, weights[step], {}, {}), score=score)
    checkpoints.close()
    return run.folder, weights


def weights_in(folder):
    return unique_weights(load(folder, device="cpu").model)


def same_mean(folder, several):
    """Whether a run's weights are the mean of several, found once more, one number at a time."""
    for name, weight in weights_in(folder).items():
        wanted = torch.stack([each[name].double() for each in several]).mean(dim=0)
        torch.testing.assert_close(weight.double(), wanted, rtol=1e-6, atol=1e-7)


def test_last_checkpoints_averaged(checkpointed, tmp_path):
    folder, weights = checkpointed
    members = average_checkpoints([folder], tmp_path / "mean", num_last=3)
    assert [member.step for member in members] == [30, 40, 50]
    same_mean(tmp_path / "mean", [weights[step] for step in (30, 40, 50)])


def test_distant_and_bad_checkpoints_warned_about(checkpointed, tmp_path):
    folder, _ = checkpointed
    members = average_checkpoints([folder], tmp_path / "mean", num_last=5)
    assert averaging_warnings(members[2:3]) == []
    bad = [str(member.folder) for member in members if member.score not in (None, 1.0)]
    warnings = averaging_warnings(members)
    assert [warning.split(": ")[0] for warning in warnings] == bad
    assert warnings[0].endswith(
        "its score is more than 10% worse than the best of this run; "
        "--num-best averages the best ones"
    )
    apart = [member._replace(step=member.step**3, score=None) for member in members]
    (warning,) = averaging_warnings(apart)
    listed = "steps 1000, 8000, 27000, 64000, 125000"
    assert averaging_warnings(apart[:2]) == []
    assert warning == f"{folder}: these checkpoints are far apart: {listed}"


def test_best_checkpoints_averaged(checkpointed, tmp_path):
    folder, weights = checkpointed
    members = average_checkpoints([folder], tmp_path / "mean", num_best=2)
    assert [(member.step, member.score) for member in members] == [(30, 1.0), (50, 1.5)]
    same_mean(tmp_path / "mean", [weights[30], weights[50]])


def test_runs_averaged_by_saved_weights(tmp_path):
    one, first = published(tmp_path / "one", 1)
    two, second = published(tmp_path / "two", 2)
    members = average_checkpoints([one, two], tmp_path / "mean")
    assert [member.folder for member in members] == [one, two]
    same_mean(tmp_path / "mean", [first, second])


def test_average_is_a_run_that_translates(checkpointed, tmp_path):
    folder, _ = checkpointed
    average_checkpoints([folder], tmp_path / "mean", num_last=2)
    found = load(tmp_path / "mean", device="cpu").translate(["a b", "c"])
    assert len(found) == 2
    assert (tmp_path / "mean" / "config.yaml").read_text() == (folder / "config.yaml").read_text()


def test_average_of_a_model_with_itself_is_that_model(tmp_path):
    one, weights = published(tmp_path / "one", 1)
    average_checkpoints([one, one, one], tmp_path / "mean")
    for name, weight in weights_in(tmp_path / "mean").items():
        assert torch.equal(weight, weights[name])


def test_sums_are_float64():
    """In single precision 1e8 + 1 is 1e8, and the mean of these would be 0."""
    numbers = [1e8, 1.0, -1e8]
    found = average_state_dicts({"a": torch.tensor([number])} for number in numbers)["a"]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([1 / 3]))


def test_integer_tensors_not_averaged():
    found = average_state_dicts({"calls": torch.tensor(number)} for number in (1, 4))
    assert found["calls"] == 4
    assert found["calls"].dtype == torch.int64


def error_text(*arguments, error=RunError, **options):
    with pytest.raises(error) as caught:
        average_checkpoints(*arguments, **options)
    return str(caught.value)


def test_too_few_checkpoints_are_an_error(checkpointed, tmp_path):
    folder, _ = checkpointed
    hint = "  use fewer, or train with a larger training.checkpoints.keep_last or keep_best"
    assert error_text([folder], tmp_path / "mean", num_last=6) == (
        f"{folder}/checkpoints: 6 checkpoints requested, but there are 5\n{hint}"
    )
    assert error_text([folder], tmp_path / "mean", num_best=5) == (
        f"{folder}/checkpoints: 5 validated checkpoints requested, but there are 4\n{hint}"
    )


def test_single_model_raises(checkpointed, tmp_path):
    folder, _ = checkpointed
    assert error_text([folder], tmp_path / "mean") == (
        f"{folder}: there is only one model to average\n"
        "  name several runs, or several checkpoints with --num-last or --num-best"
    )


def test_existing_output_folder_raises(checkpointed):
    folder, weights = checkpointed
    assert error_text([folder], folder, num_last=2) == (
        f"{folder}: already exists\n  use a folder that does not exist yet"
    )
    assert torch.equal(next(iter(weights_in(folder).values())), next(iter(weights[30].values())))


def test_different_model_raises_that_names_the_setting(tmp_path):
    one, _ = published(tmp_path / "one", 1)
    two, _ = published(tmp_path / "two", 2, "model.decoder.hidden_size=16")
    assert error_text([one, two], tmp_path / "mean") == (
        f"{two}: this model has model.decoder.hidden_size=16, but that of {one} has 32\n"
        "  average runs of one model"
    )
    assert not (tmp_path / "mean").exists()


def test_different_vocabulary_raises(tmp_path):
    one, _ = published(tmp_path / "one", 1)
    two, _ = published(tmp_path / "two", 2, lines=["a b c", "d e", "g"])
    assert error_text([one, two], tmp_path / "mean") == (
        f"{two}: its source vocabulary is not that of {one}\n"
        "  average runs with one vocabulary: training.init_from reuses that of another "
        "run"
    )


def test_training_settings_may_differ(tmp_path):
    one, _ = published(tmp_path / "one", 1)
    two, _ = published(tmp_path / "two", 2, "training.seed=7")
    assert len(average_checkpoints([one, two], tmp_path / "mean")) == 2


def test_missing_run_folder_raises(tmp_path):
    assert "no such folder" in error_text([tmp_path / "none"], tmp_path / "mean", num_last=2)


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
@pytest.mark.parametrize("choice", ["num_last", "num_best"])
def test_corrupt_checkpoint_raises(checkpointed, tmp_path, name, choice):
    folder, _ = checkpointed
    path = folder / "checkpoints" / "step-00000050" / name
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(bytes(contents))
    message = error_text([folder], tmp_path / "mean", error=CorruptRunError, **{choice: 2})
    assert message.startswith(str(path))
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(("choice", "steps"), [("num_last", [40, 50, 60]), ("num_best", [50, 60])])
def test_checkpoints_removed_by_a_running_trainer_replaced(
    checkpointed, tmp_path, monkeypatch, choice, steps
):
    """A trainer saves step 60 and removes step 30 while the first manifest is read."""
    folder, weights = checkpointed
    weights[60] = {name: weight + 1 for name, weight in weights[30].items()}

    def verify_beside_trainer(checkpoint):
        if 60 in {info.step for info in list_checkpoints(folder / "checkpoints")}:
            return read_and_verify_manifest(checkpoint)
        checkpoints = CheckpointManager(folder / "checkpoints", KEEP_ALL, print)
        checkpoints.save(Snapshot(60, weights[60], {}, {}), score=1.8)
        checkpoints.close()
        remove_path(folder / "checkpoints" / "step-00000030")
        return read_and_verify_manifest(checkpoint)

    module = "heedful.experiment.checkpoint_averaging"
    monkeypatch.setattr(f"{module}.read_and_verify_manifest", verify_beside_trainer)
    members = average_checkpoints([folder], tmp_path / "mean", **{choice: len(steps)})
    assert [member.step for member in members] == steps
    same_mean(tmp_path / "mean", [weights[step] for step in steps])
