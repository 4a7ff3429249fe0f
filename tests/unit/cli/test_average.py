import pytest

from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.storage.state_dict import unique_weights
from heedful.training.checkpoints import CheckpointConfig, CheckpointManager, Snapshot
from tests.commands import heedful, write_recipe


@pytest.fixture
def run(tmp_path):
    """A run that was never trained, with three checkpoints of the same weights."""
    recipe = load_recipe(str(write_recipe(tmp_path / "recipe")), [])
    text = recipe.tokenizers.train(["a b c"], ["a b c"])
    run = Run(tmp_path / "run")
    run.initialize(recipe, text)
    model = recipe.model.build(
        source_vocab_size=len(text.source), target_vocab_size=len(text.target)
    )
    weights = unique_weights(model)
    run.save_model(weights, step=2)
    checkpoints = CheckpointManager(run.checkpoints, CheckpointConfig(keep_last=9), print)
    for step, score in ((1, 3.0), (2, 1.0), (3, None)):
        checkpoints.save(Snapshot(step, weights, {}, {}), score=score)
    checkpoints.close()
    return run.folder


def test_it_says_what_was_averaged_and_what_is_written_translates(
    capsys, monkeypatch, run, tmp_path
):
    to = tmp_path / "mean"
    ended = heedful(capsys, monkeypatch, "average", run, "--last", "2", "--output-dir", to)
    assert ended.code == 0
    assert ended.out == f"{to}: the mean of 2 models\n"
    assert ended.err == (
        f"{run}/checkpoints/step-00000002 (step 2, score 1.0000)\n"
        f"{run}/checkpoints/step-00000003 (step 3)\n"
    )
    ended = heedful(capsys, monkeypatch, "translate", to, "-", stdin="a b\n")
    assert ended.code == 0


def test_the_best_and_the_last_at_once_is_refused(capsys, monkeypatch, run, tmp_path):
    words = ("--last", "2", "--best", "2", "--output-dir", tmp_path / "mean")
    ended = heedful(capsys, monkeypatch, "average", run, *words)
    assert ended.code == 2
    assert ended.err == (
        "heedful: --best: given together with --last\n  leave out one of the two\n"
    )
