"""When training stops, what it writes, and which settings may change on resume."""

import io
import json
import math
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import heedful
from heedful.config import fields_with_role
from heedful.data.sources import ParallelFilesConfig
from heedful.data.text.batching import epoch_batches
from heedful.errors import ConfigError, HeedfulError, RunError
from heedful.experiment import load_data, train
from heedful.experiment.plan import TrainingPlan
from heedful.experiment.train import check_resume_compatible
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tasks.translation.task import DevTranslator
from heedful.training.config import TrainingConfig
from tests.commands import write_recipe

NO_DECODING = ["training.validation_metrics=[]", "training.num_logged_samples=0"]


@pytest.fixture
def train_recipe(tmp_path):
    def run(*overrides, **options):
        recipe = load_recipe(str(write_recipe(tmp_path, steps=20, every=5)), overrides)
        return train(recipe, tmp_path / "run", **options)

    return run


def test_training_stops_at_max_minutes(train_recipe):
    result = train_recipe("training.max_minutes=1e-6")
    assert (result.step, result.stop_reason) == (1, "reached max_minutes=1e-06")


def validated_steps(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["type"] == "validation"]


@pytest.mark.parametrize("interruptions", [(), (7, 13)])
@pytest.mark.wide
def test_ten_validations_are_spread_over_training(train_recipe, tmp_path, interruptions):
    for steps in (*interruptions, 20):  # each resumes the one before
        settings = ["training.validate_every=null", f"training.max_steps={steps}"]
        train_recipe(*settings, *NO_DECODING)
    steps = validated_steps(tmp_path / "run")
    assert [step for step in steps if step > max(interruptions, default=0)] == (
        [14, 16, 18, 20] if interruptions else [*range(2, 21, 2)]
    )


def test_end_within_the_warmup_is_announced(train_recipe):
    output = io.StringIO()
    console = Console(file=output, width=200)
    settings = ["training.lr_scheduler={type: constant, warmup_steps: 60}", "training.max_steps=10"]
    train_recipe(*settings, console=console)
    assert (
        "training ends after about 10 steps, in the warmup of 60: the learning rate never reaches "
        "its peak; set training.lr_scheduler.warmup_ratio=0.1, or train longer"
    ) in output.getvalue()


def test_training_stops_early_without_improvement(train_recipe):
    """With a tiny learning rate no parameter moves, and the first validation stays the best."""
    settings = ["training.patience=2", "training.optimizer.learning_rate=1e-30"]
    result = train_recipe(*settings, *NO_DECODING)
    assert (result.step, result.stop_reason) == (
        15,
        "early stopping: no improvement in 2 validations",
    )


def test_best_weights_saved_and_last_checkpoint_is_kept(train_recipe, tmp_path):
    settings = ["training.optimizer.learning_rate=0.5", "training.max_grad_norm=100"]
    train_recipe(*settings, *NO_DECODING)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    validations = [json.loads(line) for line in lines if '"validation"' in line]
    best = min(validations, key=lambda validation: validation["loss"])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["step"] == best["step"]
    assert (tmp_path / "run" / "checkpoints" / "step-00000020").is_dir()


def test_terminal_shows_a_progress_bar(train_recipe, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    train_recipe("training.max_steps=10", console=console)
    assert "tokens/s" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_gradient_accumulation_takes_as_many_steps(train_recipe):
    settings = ["training.gradient_accumulation_steps=3", "training.max_steps=5"]
    assert train_recipe(*settings).step == 5


def test_training_stops_at_max_epochs(train_recipe, tmp_path):
    result = train_recipe("training.max_epochs=2", "training.batching.max_tokens=2048")
    assert result.stop_reason == "reached max_epochs=2"
    assert result.step == sum(batches_per_epoch(tmp_path)), "no batch more"


def batches_per_epoch(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)), ["training.batching.max_tokens=2048"])
    data_module = load_data(recipe, Run(tmp_path / "other"), Console(quiet=True))
    return [
        len(list(epoch_batches(data_module.train, recipe.training.batching, seed=0, epoch=epoch)))
        for epoch in range(2)
    ]


def test_training_stops_at_max_flops(train_recipe, tmp_path):
    result = train_recipe("training.max_flops=1e8", "training.validate_every=20")
    assert result.stop_reason == "reached max_flops=1e+08"
    (saved,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    flops = json.loads((saved / "progress.json").read_text())["flops"]
    assert 1e8 <= flops < 1e8 * result.step / (result.step - 2), "no step more than needed"


def test_best_model_is_selected_by_the_configured_metric(train_recipe, tmp_path):
    """The step with the best BLEU is saved, even if another has a lower loss."""
    train_recipe("training.metric_for_best_model=bleu", "training.max_eval_samples=8")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    validations = [json.loads(line) for line in lines if '"validation"' in line]
    best = max(validations, key=lambda validation: validation["bleu"])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["step"] == best["step"]


def test_moving_average_is_validated_and_saved(train_recipe, tmp_path):
    train_recipe("training.ema.decay=0.5", "training.patience=null", *NO_DECODING)
    run = tmp_path / "run"
    state = load_file(run / "checkpoints" / "step-00000020" / "training.safetensors")
    published = load_file(run / "weights.safetensors")
    live = load_file(run / "checkpoints" / "step-00000020" / "model.safetensors")
    step = json.loads((run / "manifest.json").read_text())["step"]
    assert step == 20, "the loss still falls, so the last is the best"
    for name, weight in published.items():
        assert torch.equal(weight, state[f"ema.{name}"])
    assert any(not torch.equal(weight, live[name]) for name, weight in published.items())


def test_metrics_log_has_environment_speed_memory_and_flops(train_recipe, tmp_path):
    train_recipe("training.max_steps=10")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    environment, *rest = entries
    assert environment["type"] == "environment"
    assert {"torch", "threads", "ranks", "device", "command"} <= environment.keys()
    steps = [entry for entry in rest if entry["type"] == "training"]
    assert all(entry["tokens_per_second"] > 0 for entry in steps)
    assert all(entry["peak_memory"] > 2**20 for entry in steps)
    flops = [entry["flops"] for entry in steps]
    assert flops == sorted(flops)
    assert flops[0] > 0


def test_samples_logged_at_every_validation(train_recipe, tmp_path):
    train_recipe("training.num_logged_samples=2", "training.max_steps=10")
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert [sample["step"] for sample in samples] == [5, 5, 10, 10]
    for sample in samples:
        assert len(sample["attention"]) == len(sample["output"])
    assert samples[0]["source"] == samples[2]["source"], "the same examples every time"


def test_translation_shows_bleu_chrf_and_three_samples_by_default(train_recipe, tmp_path):
    console = Console(file=io.StringIO())
    train_recipe("training.max_steps=5", console=console)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    (validation,) = [json.loads(line) for line in lines if '"validation"' in line]
    assert list(validation) == ["type", "step", "loss", "accuracy", "bleu", "chrf", "seconds"]
    shown = console.file.getvalue()
    assert re.search(r"step 5: validation loss .*, bleu [\d.]+, chrf [\d.]+\n", shown)
    samples = re.findall(r"(?m)^  source     .+\n  reference  .+\n  output     .*$", shown)
    assert len(samples) == 3


def test_validation_metrics_can_be_chosen(train_recipe, tmp_path):
    train_recipe("training.max_steps=5", "training.validation_metrics=[ter]")
    assert "ter" in (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(ConfigError) as error:
        train_recipe("training.validation_metrics=[blue]")
    assert "training.validation_metrics: the model (type: encoder-decoder) has no metric " in str(
        error.value
    )
    assert "did you mean 'bleu'?" in str(error.value)


@pytest.fixture
def clock(monkeypatch):
    """A clock that each step advances by ten seconds."""
    now = [0.0]
    monkeypatch.setattr("heedful.experiment.job.time.monotonic", lambda: now[0])

    def on_step_end(self, metrics):
        now[0] += 10

    monkeypatch.setattr("heedful.training.callbacks.MetricsLogger.on_step_end", on_step_end)
    return now


def validations_of(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if '"validation"' in line]


def test_decoding_for_shown_metrics_takes_a_tenth_of_the_time(
    clock, train_recipe, tmp_path, monkeypatch
):
    compute = DevTranslator.compute_scores
    counts = []

    def compute_scores(self, names, *, max_examples=None):
        counts.append(len(self.examples[:max_examples]))
        clock[0] += 3
        return compute(self, names, max_examples=max_examples)

    monkeypatch.setattr(DevTranslator, "compute_scores", compute_scores)
    settings = ["training.validation_metrics=[bleu]", "training.num_logged_samples=0"]
    train_recipe("training.max_steps=10", "training.validate_every=1", *settings)
    validations = validations_of(tmp_path / "run")
    assert len(validations) == 10
    # The second one would bring it to 6 s, the third to 9: too much before 60 s and 90 s.
    assert [entry["step"] for entry in validations if "bleu" in entry] == [1, 6, 9]
    assert max(counts) <= 200


@pytest.mark.parametrize(("minutes", "first"), [(None, 7), (20, 7), (5, 4), (1, 2)])
def test_first_validation_comes_in_a_minute_or_a_tenth_of_the_time(
    clock, train_recipe, tmp_path, monkeypatch, minutes, first
):
    monkeypatch.setattr("heedful.experiment.validation.FIRST_VALIDATION_SECONDS", 60.0)
    settings = ["training.max_steps=10", "training.validate_every=9", *NO_DECODING]
    train_recipe(*settings, f"training.max_minutes={'null' if minutes is None else minutes}")
    steps = [entry["step"] for entry in validations_of(tmp_path / "run")]
    assert steps == [first, *([7] if minutes == 1 else [9, 10])]


@pytest.mark.wide
def test_early_validation_changes_no_result(train_recipe, tmp_path, monkeypatch):
    """Neither parameters nor scores, and so neither the plateau schedule nor early stopping."""
    plateau = "training.lr_scheduler={type: plateau, patience: 1, warmup_steps: 5}"
    settings = [plateau, "training.patience=2", "model.encoder.dropout=0.2", *NO_DECODING]
    progress, weights = [], []
    for seconds in (math.inf, 0.0):
        monkeypatch.setattr("heedful.experiment.validation.FIRST_VALIDATION_SECONDS", seconds)
        train_recipe(*settings)
        (tmp_path / "run").rename(tmp_path / f"run-{seconds}")
        steps = [entry["step"] for entry in validations_of(tmp_path / f"run-{seconds}")]
        assert (steps[0] == 1) == (seconds == 0)
        last = tmp_path / f"run-{seconds}" / "checkpoints" / "step-00000020"
        progress.append(json.loads((last / "progress.json").read_text())["scores"])
        weights.append(load_file(last / "model.safetensors"))
    assert progress[0] == progress[1]
    assert len(progress[0]) == 4
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def interrupt_at(step, monkeypatch):
    def on_step_end(self, metrics):
        if metrics.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("heedful.training.callbacks.MetricsLogger.on_step_end", on_step_end)


def test_interrupt_is_acknowledged_saved_and_logged(train_recipe, tmp_path, monkeypatch):
    console = Console(file=io.StringIO())
    with monkeypatch.context() as patches:
        interrupt_at(3, patches)
        assert train_recipe(console=console).stop_reason == ""
    notice = "finishing step 3, saving a checkpoint; press again to stop without saving"
    assert f"\n{notice}\n" in console.file.getvalue()
    log = (tmp_path / "run" / "train.log").read_text()
    shown = console.file.getvalue().splitlines()
    assert [line[20:] for line in log.splitlines()] == [
        *shown,
        "step 3: saved; training was interrupted",
    ]
    train_recipe(console=Console(quiet=True))
    resumed = (tmp_path / "run" / "train.log").read_text()
    assert resumed.startswith(log)
    assert "resuming from step 3" in resumed.removeprefix(log)
    assert resumed.endswith("step 20: reached max_steps=20\n")


def test_interrupt_before_the_first_step_is_acknowledged(train_recipe, tmp_path, monkeypatch):
    def stream_interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return iter(())

    monkeypatch.setattr(ParallelFilesConfig, "stream", stream_interrupted)
    console = Console(file=io.StringIO())
    # A background process may have been started with SIGINT ignored.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train_recipe(console=console)
    finally:
        signal.signal(signal.SIGINT, previous)
    notice = "stopping before the first step: there is nothing to save\n"
    assert console.file.getvalue().endswith(notice)


def test_interrupt_of_a_script_raises_after_saving(tmp_path, monkeypatch):
    recipe, run = str(write_recipe(tmp_path, steps=6, every=3)), tmp_path / "run"
    with monkeypatch.context() as patches:
        interrupt_at(2, patches)
        with pytest.raises(KeyboardInterrupt, match="saved at step 2; the same call resumes"):
            heedful.train(recipe, run)
    assert (run / "checkpoints" / "step-00000002").is_dir()
    assert heedful.train(recipe, run).step == 6


def test_log_has_the_error_that_ended_training(train_recipe, tmp_path):
    train_recipe("training.max_steps=1")
    with pytest.raises(RunError):
        train_recipe("training.seed=7")
    assert "RunError: " in (tmp_path / "run" / "train.log").read_text()


def test_init_from_uses_weights_and_tokenizers_of_another_run(train_recipe, tmp_path):
    train_recipe()
    recipe = load_recipe(
        str(write_recipe(tmp_path, steps=1, every=1)), [f"training.init_from={tmp_path / 'run'}"]
    )
    result = train(recipe, tmp_path / "second")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    before = min(json.loads(line)["loss"] for line in lines if '"validation"' in line)
    assert result.best_score == pytest.approx(before, rel=0.2)
    for name in ("source", "target"):
        vocabulary = Path("tokenizers") / name / "vocabulary.json"
        assert (tmp_path / "second" / vocabulary).read_bytes() == (
            tmp_path / "run" / vocabulary
        ).read_bytes()


def test_init_from_with_another_tokenizer_raises(train_recipe, tmp_path):
    train_recipe()
    run = tmp_path / "run"
    overrides = [f"training.init_from={run}", "tokenizers.source.type=character"]
    recipe = load_recipe(str(write_recipe(tmp_path)), overrides)
    with pytest.raises(ConfigError) as caught:
        train(recipe, tmp_path / "second")
    assert str(caught.value) == (
        f"training.init_from={run}: that run uses a different tokenizer, so its weights do not "
        "match\n  copy the section `tokenizers` from its config.yaml"
    )


def test_checkpoints_kept_as_configured(train_recipe, tmp_path):
    train_recipe(
        "training.save_every=2", "training.checkpoints={keep_last: 1, keep_best: 0, keep_every: 6}"
    )
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert kept == [f"step-000000{step}" for step in ("06", "12", "18", "20")]


@pytest.fixture
def run(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path, steps=2, every=1)))
    train(recipe, tmp_path / "run", console=Console(quiet=True))
    return Run(tmp_path / "run")


def test_roles_of_training_settings():
    """A new setting is classified where it is defined: here is the whole classification."""
    assert fields_with_role(TrainingConfig, "limit") == [
        "max_steps",
        "max_epochs",
        "max_minutes",
        "max_flops",
        "patience",
        "target_score",
    ]
    assert fields_with_role(TrainingConfig, "execution") == [
        "max_nonfinite_steps",
        "validate_every",
        "validate_every_epochs",
        "validation_metrics",
        "max_eval_samples",
        "num_logged_samples",
        "save_every",
        "checkpoints",
        "distributed_strategy",
        "cpu_processes",
    ]
    assert fields_with_role(TrainingConfig, "seed") == ["seed"]


def plan_of(recipe, run, file):
    return TrainingPlan(recipe, run, torch.device("cpu"), Console(file=file, width=1000))


def test_resumable_change_is_logged(run):
    recipe = load_recipe(str(run.folder / "config.yaml"), ["training.checkpoints.keep_last=5"])
    output = io.StringIO()
    assert check_resume_compatible(plan_of(recipe, run, output))
    line = f"{run.folder}: training.checkpoints.keep_last was 2 and is now 5\n"
    assert output.getvalue() == line


@pytest.mark.parametrize("change", ["finished", "extended", "missing data", "changed data"])
def test_resume_writes_changed_settings_only_if_it_succeeds(change, train_recipe, tmp_path):
    train_recipe("training.max_steps=2")
    run, data = Run(tmp_path / "run"), tmp_path / "source.txt"
    before = run.read_recipe()
    if change == "missing data":
        data.unlink()
    elif change == "changed data":
        data.write_text("x\n" + data.read_text().split("\n", 1)[1])
    steps = 2 if change == "finished" else 3
    recipe = load_recipe(before, [f"training.max_steps={steps}", "decoding.beam_size=7"])
    if change in {"finished", "extended"}:
        train(recipe, run.folder, console=Console(quiet=True))
    else:
        with pytest.raises(HeedfulError):
            train(recipe, run.folder, console=Console(quiet=True))
    assert run.read_recipe() == (recipe if change in {"finished", "extended"} else before)
    run.verify()


def test_other_change_is_reported_before_writing(run):
    overrides = ["training.max_steps=9", "training.optimizer.learning_rate=0.5"]
    recipe = load_recipe(str(run.folder / "config.yaml"), overrides)
    before = (run.folder / "config.yaml").read_bytes()
    with pytest.raises(
        RunError, match=r"training\.optimizer\.learning_rate=0\.01, but now it is 0\.5"
    ):
        check_resume_compatible(plan_of(recipe, run, io.StringIO()))
    assert (run.folder / "config.yaml").read_bytes() == before


def test_same_recipe_logs_nothing(run):
    output = io.StringIO()
    assert not check_resume_compatible(plan_of(run.read_recipe(), run, output))
    assert output.getvalue() == ""


IMPOSSIBLE = {
    "deep fusion over an encoder without cell states": (
        ["model.decoder.cell.type=lstmn", "model.decoder.wiring={type: deep-fusion}"],
        "encoder.cell.type: wiring 'deep-fusion' needs cell states, but this encoder returns none",
    ),
    "sizes that do not fit": (
        ["model.decoder.attention.score.type=dot", "model.decoder.hidden_size=8"],
        "score.type: 'dot' needs equal sizes, but queries have 8 and keys 32",
    ),
    "settings of parameters that do not exist": (
        ["training.optimizer.param_groups=[{pattern: encoder.x}]"],
        "training.optimizer.param_groups.0.pattern: no parameter matches 'encoder.x'",
    ),
    "nothing to train": (
        ["training.optimizer.param_groups=[{pattern: '*', frozen: true}]"],
        "training.optimizer.param_groups: all parameters are frozen",
    ),
    "no data": (["data.train=null"], "data.train: the recipe names no training data"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_unsupported_recipe_raises_before_writing(name, tmp_path):
    overrides, message = IMPOSSIBLE[name]
    recipe = load_recipe(str(write_recipe(tmp_path)), overrides)
    (tmp_path / "source.txt").unlink()  # nothing is read, either
    with pytest.raises(ConfigError) as caught:
        train(recipe, tmp_path / "run", console=Console(quiet=True))
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("size", "message"),
    [
        (
            8,
            "the size of a concatenated positional_encoding, 8, must be smaller than hidden_size 8",
        ),
        (None, "a concatenated positional_encoding takes half of hidden_size, but 9 is odd"),
    ],
)
def test_concatenated_positions_must_leave_values_for_tokens(side, size, message, tmp_path):
    encoding = f"{{type: sinusoidal, combine: concat, size: {size or 'null'}}}"
    settings = f"hidden_size: {size or 9}, attention: {{score: {{type: scaled-dot}}}}"
    override = f"model.{side}={{type: transformer, {settings}, positional_encoding: {encoding}}}"
    recipe = str(write_recipe(tmp_path))
    (tmp_path / "source.txt").unlink()  # nothing is read, either
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, [override])
    assert str(caught.value).startswith(f"--set model.{side}: {message}")


def test_unknown_tracker_raises_before_writing(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)))
    with pytest.raises(ConfigError, match="unknown tracker 'tensorbord'"):
        train(recipe, tmp_path / "run", report_to=["tensorbord"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "max_examples"),
    [
        ("model.decoder.wiring={type: attend-then-step}", 1000),
        ("tokenizers.source.type=character", 1000),
        ("tokenizers.source.type=character", 10),
        ("training.seed=5", 10),
    ],
    ids=["model", "tokenizers", "tokenizers, data in files", "seed, data in files"],
)
@pytest.mark.wide
def test_run_without_a_checkpoint_starts_over_with_other_settings(
    changed, max_examples, tmp_path, monkeypatch
):
    def fail(*args):
        raise KeyboardInterrupt

    path = str(write_recipe(tmp_path, steps=1, every=1))
    limit = f"data.max_in_memory_examples={max_examples}"
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["heedful.experiment.train"], "run_training", fail)
        with pytest.raises(KeyboardInterrupt):
            train(load_recipe(path, [limit]), tmp_path / "run", console=Console(quiet=True))
    output = io.StringIO()
    recipe = load_recipe(path, [limit, changed])
    train(recipe, tmp_path / "run", console=Console(file=output, width=200))
    assert "run: has no checkpoint yet; starting over with these settings" in output.getvalue()
    run = Run(tmp_path / "run")
    run.verify()
    assert run.read_recipe() == recipe
    train(recipe, tmp_path / "new", console=Console(quiet=True))
    for file in ("weights.safetensors", "tokenizers/source/vocabulary.json"):
        assert (run.folder / file).read_bytes() == (tmp_path / "new" / file).read_bytes()


def test_unreadable_recipe_does_not_block_a_run_without_a_checkpoint(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path, steps=1, every=1)))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("model: [")
    train(recipe, tmp_path / "run", console=Console(quiet=True))
    assert Run(tmp_path / "run").read_recipe() == recipe


def test_step_that_outlasts_the_time_is_announced_before_it(tmp_path):
    (tmp_path / "book.txt").write_text("a line of a text\n" * 200)
    settings = {"training.max_minutes": 0.0005, "data.lm_batching.batch_size": 4}
    settings |= {"model.backbone.num_layers": 2, "training.num_logged_samples": 0}
    train(
        "gpt-small", tmp_path / "run", text=tmp_path / "book.txt", settings=settings, device="cpu"
    )
    lines = (tmp_path / "run" / "train.log").read_text().splitlines()
    pattern = r"a step takes about \S+ seconds on this device \(\S+ FLOPs\), longer than "
    pattern += r"training\.max_minutes=0\.0005; lower data\.lm_batching\.batch_size, or choose"
    announced = next(row for row, line in enumerate(lines) if re.search(pattern, line))
    assert announced < next(row for row, line in enumerate(lines) if "step 1" in line)
