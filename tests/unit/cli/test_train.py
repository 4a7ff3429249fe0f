"""`heedful train`."""

import json

import yaml

from tests.commands import heedful, write_recipe

QUICK = ["--set", "training.max_steps=4", "--set", "training.validate_every=2"]
SMALL = [
    "--set=tokenizers.source.type=word",
    "--set=tokenizers.target.type=character",
    "--set=model.encoder.hidden_size=16",
]


def test_two_files_are_trained_into_a_run(capsys, monkeypatch, tmp_path):
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = ["--source", "source.txt", "--target", "target.txt"]
    ended = heedful(capsys, monkeypatch, "train", *files, *QUICK, *SMALL)
    assert ended.code == 0
    assert ended.out == (
        "runs/default: reached max_steps=4; try: heedful translate runs/default FILE\n"
    )
    run = tmp_path / "runs" / "default"
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["train"] == {
        "type": "parallel-files",
        "source": "source.txt",
        "target": "target.txt",
    }
    assert config["tokenizers"]["source"]["type"] == "word"
    assert config["training"]["max_steps"] == 4
    assert sorted(path.name for path in run.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "samples.jsonl",
        "tokenizers",
        "weights.safetensors",
    ]


def test_metrics_are_json_lines(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path, steps=20, every=10)
    heedful(capsys, monkeypatch, "train", recipe, "--run", tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    training = [line for line in lines if line["type"] == "training"]
    assert [line["step"] for line in training] == [1, 10, 20]
    assert set(training[0]) == {
        "type",
        "step",
        "epoch",
        "loss",
        "grad_norm",
        "learning_rate",
        "num_tokens",
        "num_targets",
        "num_skipped_steps",
        "tokens_per_second",
        "flops",
        "peak_memory",
        "seconds",
    }
    assert [line["step"] for line in lines if line["type"] == "validation"] == [10, 20]


def test_progress_is_plain_lines_without_a_terminal(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path, steps=3, every=2)
    ended = heedful(capsys, monkeypatch, "train", recipe, "--run", tmp_path / "run")
    assert "train: 570 of 570 pairs kept\n" in ended.err
    assert "step 3 (100 %)  loss " in ended.err
    assert "\x1b" not in ended.err


def test_dev_files_are_used_for_validation(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    for name in ("x", "y"):
        (tmp_path / name).write_text("a b\n" * 7)
    ended = heedful(
        capsys,
        monkeypatch,
        "train",
        recipe,
        "--run",
        tmp_path / "run",
        "--dev-source",
        tmp_path / "x",
        "--dev-target",
        tmp_path / "y",
    )
    assert "train: 600 of 600 pairs kept\ndev: 7 of 7 pairs kept\n" in ended.err


def test_shortcuts_are_short_for_settings(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path)
    shortcuts = {
        "--steps": ("training.max_steps", 4),
        "--minutes": ("training.max_minutes", 2.5),
        "--seed": ("training.seed", 7),
        "--batch-tokens": ("training.batching.max_tokens", 99),
        "--lr": ("training.optimizer.learning_rate", 0.003),
        "--metric": ("training.metric_for_best_model", "bleu"),
    }
    words = [str(word) for option, (_, value) in shortcuts.items() for word in (option, value)]
    settings = [f"--set={name}={value}" for name, value in shortcuts.values()]
    for run, options in (("short", words), ("long", settings)):
        assert (
            heedful(capsys, monkeypatch, "train", recipe, "-o", tmp_path / run, *options).code == 0
        )
    short, long = (
        yaml.safe_load((tmp_path / run / "config.yaml").read_text()) for run in ("short", "long")
    )
    assert short == long
    assert short["training"]["max_minutes"] == 2.5
    assert short["training"]["batching"]["max_tokens"] == 99


def test_set_wins_over_a_shortcut(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path)
    options = ["--steps", 9, "--set", "training.max_steps=2", "-o", tmp_path / "run"]
    ended = heedful(capsys, monkeypatch, "train", recipe, *options)
    assert "reached max_steps=2" in ended.out
