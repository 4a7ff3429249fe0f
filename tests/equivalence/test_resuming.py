"""Interrupted training resumes as if it had never stopped."""

import json
import os
import signal
import time

import pytest
from safetensors.numpy import load_file

import heedful
from heedful.experiment import train
from heedful.recipes import load_recipe
from tests.commands import write_recipe
from tests.forecasting import BACKBONES, write_series_recipe
from tests.forking import ForkedCommand
from tests.labeled_texts import write_labeled_recipe
from tests.language_modeling import MODELS as TEXT_MODELS
from tests.language_modeling import write_text_recipe
from tests.tagged_words import write_tagging_recipe

pytestmark = pytest.mark.wide

SIZES = ("embedding", "hidden")  # small, because fp16 is slow on a CPU
DROPOUT = ["model.encoder.dropout=0.2", "model.decoder.dropout=0.2"]
EVERYTHING = [
    *DROPOUT,
    *(f"model.{side}.{name}_size=8" for side in ("encoder", "decoder") for name in SIZES),
    "training.gradient_accumulation_steps=2",
    "training.precision=fp16",
    "training.ema.decay=0.9",
    "training.lr_scheduler={type: plateau, patience: 1, warmup_steps: 5}",
    "training.validate_every=3",
    "training.validation_metrics=[]",
    "training.num_logged_samples=1",
    "training.patience=100",
]
EXPERTS = [
    "model.decoder.cell={type: lstm, cell_state_size: 64}",
    "model.decoder.num_layers=2",
    "model.decoder.wiring={type: bottom-layer-attention}",
    "model.decoder.experts={num_experts: 4, intermediate_size: 8}",
]
COPYING = [
    "tokenizers={type: shared, hidden_word_rate: 0.5, tokenizer: {type: word}}",
    "tokenizers.tokenizer.open_vocabulary=true",
    "model.decoder.output_head={type: copynet}",
]


def last_checkpoint(run):
    return max((run / "checkpoints").glob("step-*"))


def tensors_of(run):
    """Every tensor of the last checkpoint: parameters, optimizer, averages, random state."""
    checkpoint_dir = last_checkpoint(run)
    return load_file(checkpoint_dir / "model.safetensors") | load_file(
        checkpoint_dir / "training.safetensors"
    )


def progress_of(run):
    progress = json.loads((last_checkpoint(run) / "progress.json").read_text())
    return {name: value for name, value in progress.items() if name != "seconds"}


def assert_same_end(one, other):
    assert progress_of(one) == progress_of(other)
    actual, expected = tensors_of(one), tensors_of(other)
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        assert (tensor == expected[name]).all(), name


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the command ended before it could be interrupted"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def assert_resuming_changes_nothing(recipe, steps, tmp_path, monkeypatch):
    train(recipe, tmp_path / "whole")
    for step in steps:
        run = tmp_path / f"stopped-{step}"
        monkeypatch.setattr(
            "heedful.training.callbacks.MetricsLogger.on_step_end", _interrupt_at(step)
        )
        assert train(recipe, run).stop_reason == ""
        monkeypatch.undo()
        result = train(recipe, run)
        assert result.stop_reason == f"reached max_steps={recipe.training.max_steps}"
        assert_same_end(tmp_path / "whole", run)


def _interrupt_at(step):
    def on_step_end(self, report):
        if report.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return on_step_end


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        (DROPOUT, (5,)),
        pytest.param(
            [
                "model.decoder.attention.alignment.type=sampled",
                "training.scheduled_sampling.type=linear",
            ],
            (8,),
            marks=pytest.mark.wide,
        ),
        pytest.param(EVERYTHING, (7,), marks=pytest.mark.wide),
        pytest.param(EXPERTS, (5,), marks=pytest.mark.wide),
        pytest.param(
            ["training.guided_alignment={aligner: {type: fast-align}}"],
            (5,),
            marks=pytest.mark.wide,
        ),
        pytest.param(COPYING, (7,), marks=pytest.mark.wide),
    ],
    ids=[
        *("plain", "sampled alignment and tokens", "everything that has a state"),
        *("experts with projected LSTMs", "guided alignment", "copying of hidden words"),
    ],
)
def test_resumed_training_same_as_uninterrupted_bitwise(overrides, steps, tmp_path, monkeypatch):
    recipe = load_recipe(str(write_recipe(tmp_path, steps=10, every=5)), overrides)
    assert_resuming_changes_nothing(recipe, steps, tmp_path, monkeypatch)


@pytest.mark.faults
@pytest.mark.parametrize("overrides", [DROPOUT, EVERYTHING], ids=["plain", "everything"])
def test_training_resumed_after_any_step_same_as_uninterrupted_bitwise(
    overrides, tmp_path, monkeypatch
):
    recipe = load_recipe(str(write_recipe(tmp_path, steps=10, every=4)), overrides)
    assert_resuming_changes_nothing(recipe, range(1, 10), tmp_path, monkeypatch)


@pytest.mark.wide
@pytest.mark.parametrize("model", TEXT_MODELS)
def test_resumed_language_model_same_as_uninterrupted_bitwise(model, tmp_path, monkeypatch):
    larger = ["data.lm_batching.batch_size=8"]  # about 9 batches per epoch
    recipe = load_recipe(str(write_text_recipe(tmp_path, model, steps=14, every=7)), larger)
    assert_resuming_changes_nothing(recipe, (11,), tmp_path, monkeypatch)


@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name != "gru"])
def test_resumed_forecaster_same_as_uninterrupted_bitwise(backbone, tmp_path, monkeypatch):
    recipe = load_recipe(str(write_series_recipe(tmp_path, backbone, steps=10, every=5)))
    assert_resuming_changes_nothing(recipe, (8,), tmp_path, monkeypatch)


@pytest.mark.parametrize("write", [write_labeled_recipe, write_tagging_recipe])
@pytest.mark.wide
def test_resumed_labeler_same_as_uninterrupted_bitwise(write, tmp_path, monkeypatch):
    recipe, data = write(tmp_path, steps=6, every=3)
    kind = "conll" if data.suffix == ".conll" else "tsv"
    columns = ["source_column: 2", "target_column: 1"] if kind == "tsv" else []
    train_data = ", ".join([f"type: {kind}", f"path: {data}", *columns])
    overrides = [f"data.train={{{train_data}}}", "model.dropout=0.2", "model.word_dropout=0.2"]
    assert_resuming_changes_nothing(
        load_recipe(str(recipe), overrides), (4,), tmp_path, monkeypatch
    )


@pytest.mark.faults
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signal_saves_checkpoint_and_same_command_resumes(tmp_path, signal_number):
    recipe = write_recipe(tmp_path, steps=3000, every=1000)
    run = tmp_path / "run"
    command = ["train", recipe, "--run", run, "--set", "training.max_steps=3000"]
    process = ForkedCommand(*command, stdout=-1, stderr=-1)
    wait_for(lambda: _last_step(run) > 0, process)
    process.send_signal(signal_number)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    step = int(last_checkpoint(run).name.removeprefix("step-"))
    assert 0 < step < 3000
    assert stdout == f"{run}: saved at step {step}; the same command resumes\n"
    again = ForkedCommand(*command, stdout=-1, stderr=-1)
    wait_for(lambda: _last_step(run) > step, again)
    again.send_signal(signal.SIGINT)
    _, err = again.communicate(timeout=60)
    assert f"{run}: resuming from step {step}\n" in err


def _last_step(run):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


@pytest.mark.faults
def test_killed_training_resumes_from_last_checkpoint(tmp_path):
    recipe = write_recipe(tmp_path, steps=100, every=10)
    run = tmp_path / "run"
    process = ForkedCommand("train", recipe, "--run", run, stderr=-1)
    wait_for(lambda: (run / "checkpoints").exists() and _last_step(run) > 15, process)
    process.kill()
    process.communicate()
    heedful.train(str(recipe), run)
    heedful.train(str(recipe), tmp_path / "whole")
    assert_same_end(tmp_path / "whole", run)
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged_steps = [entry["step"] for entry in steps if entry["type"] == "training"]
    assert logged_steps == sorted(set(logged_steps))


@pytest.mark.wide
def test_finished_run_is_extended_with_message(tmp_path, capsys):
    recipe = str(write_recipe(tmp_path, steps=20, every=10))
    run = tmp_path / "run"
    heedful.train(recipe, run)
    heedful.train(recipe, run)
    assert f"{run}: already trained (reached max_steps=20) at step 20\n" in capsys.readouterr().err
    result = heedful.train(recipe, run, settings=["training.max_steps=30"])
    assert (result.step, result.stop_reason) == (30, "reached max_steps=30")
    stderr = capsys.readouterr().err
    assert f"{run}: training.max_steps was 20 and is now 30\n" in stderr
    assert f"{run}: was finished (reached max_steps=20); training is extended\n" in stderr
    # After 10 steps of warm-up, 1/11 of the rate is left at step 20 of 20, 10/21 at 21 of 30.
    assert "the learning rate of the last step was 0.000909; the next step has 0.00476\n" in stderr
    heedful.load(run)  # the recipe in the folder was replaced, and still belongs to it


@pytest.mark.wide
def test_extended_run_with_constant_rate_same_as_uninterrupted(tmp_path):
    recipe = str(write_recipe(tmp_path, steps=20, every=10))
    constant = "training.lr_scheduler={type: constant}"
    heedful.train(recipe, tmp_path / "whole", settings=[constant, "training.max_steps=30"])
    for steps in (20, 30):
        overrides = [constant, f"training.max_steps={steps}"]
        heedful.train(recipe, tmp_path / "extended", settings=overrides)
    assert_same_end(tmp_path / "whole", tmp_path / "extended")
