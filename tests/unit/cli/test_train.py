"""`heedful train`."""

import json
from pathlib import Path

import pytest
import yaml

from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.storage.state_dict import unique_weights
from heedful.training.checkpoints import CheckpointConfig, CheckpointManager, Snapshot
from tests.commands import heedful, write_recipe

pytestmark = pytest.mark.wide

QUICK = ["--set", "training.max_steps=4", "--set", "training.validate_every=2"]
SMALL = [
    "--set=tokenizers.source.type=word",
    "--set=tokenizers.target.type=character",
    "--set=model.encoder.hidden_size=16",
]


def test_two_files_trained_into_a_run(capsys, monkeypatch, tmp_path):
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
        "encoding": "utf-8",
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
        "token-cache",
        "tokenizers",
        "train.log",
        "weights.safetensors",
    ]


def test_quiet_training_prints_only_the_result(capsys, monkeypatch, tmp_path):
    recipe, run = write_recipe(tmp_path, steps=4, every=2), tmp_path / "run"
    ended = heedful(capsys, monkeypatch, "train", recipe, "--run", run, "-q")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{run}: reached max_steps=4; try: ")
    assert "step 2: validation loss" in (run / "train.log").read_text()


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
    assert "step 3 (100 %)  smoothed loss " in ended.err
    assert "\x1b" not in ended.err


def test_dev_files_used_for_validation(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    for name, long in {"x": "b a", "y": "b a " * 20}.items():
        (tmp_path / name).write_text("a b\n" * 7 + f"{long}\n")
    files = ["--dev-source", tmp_path / "x", "--dev-target", tmp_path / "y"]
    ended = heedful(capsys, monkeypatch, "train", recipe, "--run", tmp_path / "run", *files)
    assert "train: 600 of 600 pairs kept\n" in ended.err
    assert "dev: 8 of 8 pairs kept\n" in ended.err
    assert "dev: 1 of 8 targets are longer than outputs may be: raise decoding" in ended.err
    kept = f"duplicates of an earlier pair (first: {tmp_path}/x and {tmp_path}/y, line 2)"
    assert f"dev: 6 of them are {kept}" in ended.err


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


LONG = ["--steps", "50", "--set", "training.validate_every=50"]
MISTAKES = {
    "missing file": ["--source", "sorce.txt", "--target", "target.txt"],
    "unequal files": ["--source", "source.txt", "--target", "short.txt"],
    "empty files": ["--source", "empty.txt", "--target", "empty.txt"],
    "all dropped": ["--set", "data.filtering.min_length=99"],
    "too large": ["--set", "model.encoder.hidden_size=10000000"],
    "other model": ["--set", "model.decoder.wiring={type: attend-then-step}", "--steps", "0"],
    "not finite": ["--lr", "1e37", "--set", "training.max_nonfinite_steps=1", *LONG],
}


@pytest.mark.wide
def test_failed_commands_do_not_block_the_corrected_one(capsys, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    (tmp_path / "short.txt").write_text("a b\n")
    (tmp_path / "empty.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    words = ["train", recipe, "--run", "run", "--device", "cpu"]
    for mistake, options in MISTAKES.items():
        assert heedful(capsys, monkeypatch, *words, *options).code in {2, 3}, mistake
        assert not (tmp_path / "run" / "weights.safetensors").exists(), mistake
    ended = heedful(capsys, monkeypatch, *words)
    assert (ended.code, ended.out) == (
        0,
        "run: reached max_steps=2; try: heedful translate run FILE\n",
    )


# --- own data ------------------------------------------------------------------------------


@pytest.fixture
def own_pairs(tmp_path, monkeypatch):
    """Sixty different pairs in every format, with the line ends of Windows."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"a{number} b", f"c{number}, d") for number in range(60)]
    for name, side in (("train.fr", 0), ("train.en", 1)):
        Path(name).write_bytes("".join(f"{row[side]}\r\n" for row in rows).encode())
    Path("train.tsv").write_bytes("".join(f"{a}\t{b}\r\n" for a, b in rows).encode("utf-8-sig"))
    quoted = "".join(f'{number},"{b}",{a}\r\n' for number, (a, b) in enumerate(rows))
    Path("train.csv").write_bytes(f"id,en,fr\r\n{quoted}".encode("utf-8-sig"))
    records = ({"translation": {"fr": a, "en": b}} for a, b in rows)
    Path("train.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return rows


SHORT = ["--set", "training.max_steps=1", "--set", "training.validate_every=1"]


def train_on(capsys, monkeypatch, *words, recipe="reverse-tiny"):
    """Train a run that is named after its first file, and read its data again."""
    run = Path("runs") / Path(words[1]).name
    ended = heedful(capsys, monkeypatch, "train", recipe, *words, "--run", run, *SHORT)
    assert ended.code == 0, ended.err
    return ended.err, Run(run)


def test_own_files_replace_all_data_of_a_recipe(capsys, monkeypatch, own_pairs):
    files = "--source", "train.fr", "--target", "train.en"
    printed, run = train_on(capsys, monkeypatch, *files)
    assert "train: 57 of 57 pairs kept\ndev: 3 of 3 pairs kept\n" in printed
    data = run.read_recipe().data
    assert (data.train.type, data.dev, data.test) == ("parallel-files", None, None)
    sample = json.loads((run.folder / "samples.jsonl").read_text().splitlines()[0])
    assert sample["reference"] in {target for _, target in own_pairs}
    ended = heedful(capsys, monkeypatch, "evaluate", run.folder)
    assert ended.code == 2
    assert "data.test: the recipe of the run names no test set\n" in ended.err


@pytest.mark.wide
def test_files_of_pairs_train_as_parallel_files_do(capsys, monkeypatch, own_pairs):
    _, expected = train_on(capsys, monkeypatch, "--source", "train.fr", "--target", "train.en")
    weights = (expected.folder / "weights.safetensors").read_bytes()
    columns = {
        "train.tsv": [],
        "train.csv": ["--source-column", "fr", "--target-column", "2"],  # named, so a header
        "train.jsonl": ["--source-column", "translation.fr", "--target-column", "translation.en"],
    }
    for name, options in columns.items():
        _, run = train_on(capsys, monkeypatch, "--pairs", name, *options)
        assert (run.folder / "weights.safetensors").read_bytes() == weights


def test_dev_pairs_load_with_the_same_columns(capsys, monkeypatch, own_pairs):
    lines = Path("train.csv").read_text(encoding="utf-8-sig").splitlines()
    Path("dev.csv").write_text("\n".join(lines[:5]) + "\n")
    columns = "--source-column", "fr", "--target-column", "en"
    files = "--pairs", "train.csv", "--dev-pairs", "dev.csv"
    printed, _ = train_on(capsys, monkeypatch, *files, *columns)
    assert "train: 60 of 60 pairs kept\ndev: 4 of 4 pairs kept\n" in printed


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (["--set", "training.validate_every=500"], [10, 20, 25]),
        (["--set", "training.validate_every=4"], [4, 8, 12, 16, 20, 24, 25]),
        (["--set", "training.validate_every_epochs=null"], [25]),
    ],
)
def test_small_data_is_validated_every_ten_epochs(capsys, monkeypatch, own_pairs, settings, steps):
    one_batch = ["--batch-tokens", "10000", "--steps", "25", *settings]
    files = "--source", "train.fr", "--target", "train.en"
    ended = heedful(capsys, monkeypatch, "train", "reverse-tiny", *files, *one_batch)
    assert ended.code == 0, ended.err
    lines = Path("runs/reverse-tiny/metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["type"] == "validation"]
    assert [record["step"] for record in records] == steps


def test_same_file_on_both_sides_is_warned_of(capsys, monkeypatch, own_pairs):
    printed, _ = train_on(capsys, monkeypatch, "--source", "train.fr", "--target", "train.fr")
    assert "warning: source and target are the same file, train.fr: the model learns to copy\n" in (
        printed
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--pairs", "a.tsv", "--source", "a"],
            "--source: given together with --pairs\n  leave out --pairs, or give nothing else",
        ),
        (
            ["--pairs", "a.tsv", "--text", "b"],
            "--pairs: given together with --text\n  leave out one of the two",
        ),
        (
            ["--source", "a", "--target", "b", "--source-column", "fr"],
            "--source-column: works only with a file of pairs\n"
            "  add --pairs FILE, --labeled FILE or --conll FILE",
        ),
        (
            ["--pairs", "a.csv", "--target-column", "0"],
            "--target-column: columns are counted from 1\n"
            "  give the number of the column, or its name",
        ),
        (
            ["--dev-pairs", "a.csv"],
            "--dev-pairs: given without training data; that of the recipe is built-in reverse, "
            "train, 8,000 pairs, seed 0\n  add --source FILE --target FILE",
        ),
    ],
)
def test_errors_of_data_files(capsys, monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    ended = heedful(capsys, monkeypatch, "train", "reverse-tiny", *words)
    assert (ended.code, ended.err) == (2, f"heedful: {message}\n")


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
