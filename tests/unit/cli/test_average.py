import pytest

from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.storage.state_dict import unique_weights
from heedful.training.checkpoints import CheckpointConfig, CheckpointManager, Snapshot
from tests.commands import heedful, write_recipe


@pytest.fixture
def run(tmp_path):
    """An untrained run with three checkpoints of the same parameters."""
    recipe = load_recipe(str(write_recipe(tmp_path / "recipe")), [])
    tokenizers = recipe.tokenizers.train(["a b c"], ["a b c"])
    run = Run(tmp_path / "run")
    run.initialize(recipe, tokenizers)
    model = recipe.model.build(
        source_vocab_size=len(tokenizers.source), target_vocab_size=len(tokenizers.target)
    )
    weights = unique_weights(model)
    run.save_model(weights, step=2)
    checkpoints = CheckpointManager(run.checkpoints, CheckpointConfig(keep_last=9), print)
    for step, score in ((1, 3.0), (2, 1.0), (3, None)):
        checkpoints.save(Snapshot(step, weights, {}, {}), score=score)
    checkpoints.close()
    return run.folder


def test_average_prints_members_and_writes_a_run(capsys, monkeypatch, run, tmp_path):
    output = tmp_path / "mean"
    ended = heedful(capsys, monkeypatch, "average", run, "--num-last", "2", "--output-dir", output)
    assert ended.code == 0
    assert ended.out == f"{output}: the mean of 2 models\n"
    assert ended.err == (
        f"{run}/checkpoints/step-00000002 (step 2, score 1.0000)\n"
        f"{run}/checkpoints/step-00000003 (step 3)\n"
    )
    ended = heedful(capsys, monkeypatch, "translate", output, "-", stdin="a b\n")
    assert ended.code == 0


def test_num_best_with_num_last_raises(capsys, monkeypatch, run, tmp_path):
    words = ("--num-last", "2", "--num-best", "2", "--output-dir", tmp_path / "mean")
    ended = heedful(capsys, monkeypatch, "average", run, *words)
    assert ended.code == 2
    assert ended.err == (
        "heedful: --num-best: given together with --num-last\n  leave out one of the two\n"
    )
