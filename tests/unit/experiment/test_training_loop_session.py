"""When training ends, and what it says on the way."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from heedful.data.batching import epoch_batches
from heedful.errors import ConfigError
from heedful.experiment import load_data, train
from heedful.recipes import load_recipe
from heedful.runs import Run
from tests.commands import write_recipe


@pytest.fixture
def learn(tmp_path):
    def run(*overrides, **options):
        recipe = load_recipe(str(write_recipe(tmp_path, steps=40, every=10)), overrides)
        return train(recipe, tmp_path / "run", **options)

    return run


def test_it_ends_when_all_steps_are_taken(learn):
    outcome = learn()
    assert (outcome.step, outcome.stop_reason) == (40, "all 40 steps taken")


def test_it_ends_when_the_time_is_over(learn):
    outcome = learn("training.max_minutes=1e-6")
    assert (outcome.step, outcome.stop_reason) == (1, "1e-06 minutes are over")


def test_it_ends_when_validation_gets_no_better(learn):
    """At a rate so small that no weight moves, the first validation stays the best."""
    outcome = learn("training.patience=2", "training.optimizer.learning_rate=1e-30")
    assert (outcome.step, outcome.stop_reason) == (30, "no better in 2 validations")


def test_the_best_weights_are_published_and_the_last_are_gone_on_from(learn, tmp_path):
    learn("training.optimizer.learning_rate=0.5", "training.max_grad_norm=100")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    checks = [json.loads(line) for line in lines if '"validation"' in line]
    best = min(checks, key=lambda check: check["loss"])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["step"] == best["step"]
    assert (tmp_path / "run" / "checkpoints" / "step-00000040").is_dir()


def test_a_terminal_sees_a_bar_that_moves(learn, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    learn(console=Console(file=screen, force_terminal=True, width=100))
    assert "tokens/s" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_accumulating_batches_takes_as_many_updates(learn):
    assert learn("training.gradient_accumulation_steps=3").step == 40


def test_it_ends_when_the_data_was_seen_often_enough(learn, tmp_path):
    outcome = learn("training.max_epochs=2", "training.batching.max_tokens=2048")
    assert outcome.stop_reason == "all 2 epochs seen"
    assert outcome.step == sum(batches_of_an_epoch(tmp_path)), "not a batch more"


def batches_of_an_epoch(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)), ["training.batching.max_tokens=2048"])
    corpora = load_data(recipe, Run(tmp_path / "other"), Console(quiet=True))
    return [
        len(list(epoch_batches(corpora.train, recipe.training.batching, seed=0, epoch=epoch)))
        for epoch in range(2)
    ]


def test_it_ends_when_its_operations_are_done(learn, tmp_path):
    outcome = learn("training.max_flops=1e8")
    assert outcome.stop_reason == "1e+08 operations done"
    (saved,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    done = json.loads((saved / "progress.json").read_text())["operations"]
    assert 1e8 <= done < 1e8 * outcome.step / (outcome.step - 2), "not a step more than it takes"


def test_a_run_is_judged_by_the_metric_that_is_asked_for(learn, tmp_path):
    """What BLEU is best is published, though another step may have had the lowest loss."""
    learn("training.metric_for_best_model=bleu", "training.max_eval_samples=8")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    checks = [json.loads(line) for line in lines if '"validation"' in line]
    best = max(checks, key=lambda check: check["bleu"])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["step"] == best["step"]


def test_the_moving_average_is_what_is_validated_and_published(learn, tmp_path):
    learn("training.ema.decay=0.5", "training.patience=null")
    run = tmp_path / "run"
    state = load_file(run / "checkpoints" / "step-00000040" / "training.safetensors")
    published = load_file(run / "weights.safetensors")
    live = load_file(run / "checkpoints" / "step-00000040" / "model.safetensors")
    step = json.loads((run / "manifest.json").read_text())["step"]
    assert step == 40, "the loss still falls, so the last is the best"
    for name, weight in published.items():
        assert torch.equal(weight, state[f"average.{name}"])
    assert any(not torch.equal(weight, live[name]) for name, weight in published.items())


def test_every_line_of_metrics_says_what_it_cost(learn, tmp_path):
    learn()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    environment, *rest = entries
    assert environment["kind"] == "environment"
    assert {"torch", "threads", "ranks", "device", "command"} <= environment.keys()
    learned = [entry for entry in rest if entry["kind"] == "training"]
    assert all(entry["tokens_per_second"] > 0 for entry in learned)
    assert all(entry["memory"] > 2**20 for entry in learned)
    operations = [entry["operations"] for entry in learned]
    assert operations == sorted(operations)
    assert operations[0] > 0


def test_what_the_model_makes_of_a_few_texts_is_kept_at_every_validation(learn, tmp_path):
    learn("training.num_logged_samples=2")
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert [sample["step"] for sample in samples] == [10, 10, 20, 20, 30, 30, 40, 40]
    for sample in samples:
        assert len(sample["weights"]) == len(sample["output"])
    assert samples[0]["source"] == samples[2]["source"], "the same texts every time"


def test_a_run_begins_with_the_weights_and_words_of_another(learn, tmp_path):
    learn()
    recipe = load_recipe(
        str(write_recipe(tmp_path, steps=1, every=1)), [f"training.init_from={tmp_path / 'run'}"]
    )
    outcome = train(recipe, tmp_path / "second")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    before = min(json.loads(line)["loss"] for line in lines if '"validation"' in line)
    assert outcome.best_score == pytest.approx(before, rel=0.2)
    for name in ("source", "target"):
        words = Path("text") / name / "vocabulary.json"
        assert (tmp_path / "second" / words).read_bytes() == (tmp_path / "run" / words).read_bytes()


def test_weights_that_mean_other_tokens_are_refused(learn, tmp_path):
    learn()
    run = tmp_path / "run"
    overrides = [f"training.init_from={run}", "tokenizers.source.type=character"]
    recipe = load_recipe(str(write_recipe(tmp_path)), overrides)
    with pytest.raises(ConfigError) as caught:
        train(recipe, tmp_path / "second")
    assert str(caught.value) == (
        f"training.init_from={run}: that run cuts text in another way, so its weights mean other "
        "tokens\n  give the settings under `text` that its config.yaml has"
    )


def test_checkpoints_are_kept_as_the_recipe_says(learn, tmp_path):
    learn(
        "training.save_every=5", "training.checkpoints={keep_last: 1, keep_best: 0, keep_every: 15}"
    )
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert kept == ["step-00000015", "step-00000030", "step-00000040"]
