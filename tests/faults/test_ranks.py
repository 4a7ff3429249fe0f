"""Several ranks learn what one learns, and lose no more than one when something happens to them."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import heedful
from heedful.storage.atomic import lock_folder
from tests.commands import reserved_port, write_recipe
from tests.equivalence.test_resuming import assert_same_end, last_checkpoint, wait_for
from tests.forking import ForkedCommand
from tests.language_modeling import write_text_recipe
from tests.tagged_words import write_tagging_recipe

pytestmark = pytest.mark.faults
slow = partial(pytest.param, marks=pytest.mark.slow)  # CI has each kind of training and end once

TRANSFORMER = """
info: {{summary: letters}}
data:
  train: {{type: parallel-files, source: {folder}/source.txt, target: {folder}/target.txt}}
tokenizers: {{type: shared, tokenizer: {{type: word}}}}
model:
  encoder: {{type: transformer, hidden_size: 16, num_layers: 2, dropout: 0.0}}
  decoder: {{type: transformer, hidden_size: 16, num_layers: 2, dropout: 0.0}}
  embeddings: shared
training:
  max_steps: 20
  validate_every: 10
  batching: {{max_tokens: 512}}
decoding: {{max_source_length: 40}}
"""
SHARDED = "training.distributed_strategy=fsdp"
LONG = "training.max_steps=100000"
MAX_SECONDS = 300  # a busy machine may take long to start torch


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, steps=20, every=10)
    # However long it is meant to go on, it begins the same.
    path.write_text(
        path.read_text().replace("{type: linear, warmup_steps: 10}", "{type: constant}")
    )
    return path


@pytest.fixture
def transformer(recipe):
    path = recipe.with_name("transformer.yaml")
    path.write_text(TRANSFORMER.format(folder=recipe.parent))
    return path


def start(recipe, run, *overrides, restarts=0):
    """Start training on two ranks; what each of them says goes to a file of its own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher.append("--standalone")  # a port of its own
    options = ["--log-dir", f"{run}-logs", "--redirects", "3", "--max-restarts", str(restarts)]
    words = ["-m", "--", "heedful", "train", str(recipe), "--run", str(run)]
    words += [word for override in overrides for word in ("--set", override)]
    env = {**os.environ, "PYTHONFAULTHANDLER": "1"}  # whoever crashes says where
    return subprocess.Popen([*launcher, *options, *words], stdout=-1, stderr=-1, text=True, env=env)


def train(recipe, run, *overrides, ranks=2):
    """Train on one rank or two, without the launcher, whose processes import everything anew."""
    if ranks == 1:
        heedful.train(str(recipe), run, settings=list(overrides))
    else:
        codes = run_two_ranks(recipe, run, *overrides)
        assert codes == [0, 0], said(run, "stderr", rank=1) + said(run, "stderr")
    return run


def run_two_ranks(recipe, run, *overrides):
    """Run the command on two ranks; return their exit codes."""
    words = ["train", recipe, "--run", run]
    words += [word for override in overrides for word in ("--set", override)]
    processes = []
    with reserved_port() as port:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for rank in ("0", "1"):
            logs = Path(f"{run}-logs", "forked", "attempt_0", rank)  # as torchrun names them
            logs.mkdir(parents=True, exist_ok=True)
            env = {**os.environ, **address, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
            with (logs / "stdout.log").open("ab") as out, (logs / "stderr.log").open("ab") as err:
                processes.append(ForkedCommand(*words, env=env, stdout=out, stderr=err))
        return [process.wait(MAX_SECONDS) for process in processes]


def said(run, stream, rank=0):
    logs = Path(f"{run}-logs").glob(f"*/attempt_*/{rank}/{stream}.log")
    return "".join(path.read_text() for path in sorted(logs))


def weights(run):
    return load_file(last_checkpoint(run) / "model.safetensors")


def saved_step(run):
    return json.loads((last_checkpoint(run) / "manifest.json").read_text())["step"]


def assert_alike(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    for name, weight in one.items():  # Adam magnifies the rounding of gradients close to zero
        torch.testing.assert_close(other[name], weight, rtol=1e-4, atol=1e-4)


def metrics(run, kind="training"):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["type"] == kind]


def assert_no_step_is_told_twice(run):
    for kind in ("training", "validation"):
        steps = [line["step"] for line in metrics(run, kind)]
        assert steps == sorted(set(steps))


def has_taken(run, step):
    return lambda: (
        (run / "metrics.jsonl").exists() and any(line["step"] >= step for line in metrics(run))
    )


def pids(run):
    """The processes that train into a folder, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            names = (folder / "environ").read_text().split("\0")
        except OSError:
            continue
        ranks = [name.removeprefix("RANK=") for name in names if name.startswith("RANK=")]
        if ranks and str(run) in words and "heedful" in " ".join(words):
            found[int(ranks[0])] = int(folder.name)
    return found


def has_bf16():
    import torch

    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


FEW_ROWS = "training.batching.max_tokens=14"  # one row of the longest, two of most


@pytest.mark.parametrize("parallel", ["ddp", slow("fsdp")])
def test_two_ranks_match_one(parallel, recipe, tmp_path):
    """Three batches of a row or two in each step, with an average of the weights."""
    overrides = ["training.gradient_accumulation_steps=3", FEW_ROWS, "training.ema.decay=0.9"]
    one = train(recipe, tmp_path / "one", *overrides, ranks=1)
    two = train(recipe, tmp_path / "two", *overrides, f"training.distributed_strategy={parallel}")
    assert_alike(one, two)
    for mine, theirs in zip(metrics(one), metrics(two), strict=True):
        for name in ("loss", "grad_norm", "num_tokens", "num_targets", "epoch"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-4), name
    for mine, theirs in zip(metrics(one, "validation"), metrics(two, "validation"), strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-4)


@pytest.mark.parametrize(("parallel", "tune"), [("ddp", "all"), slow("fsdp", "frozen")])
def test_two_ranks_train_a_tagger_on_states_of_a_language_model(parallel, tune, tmp_path):
    lm = write_text_recipe(tmp_path, tokenizer="whitespace", steps=2, every=2)
    lm.write_text(lm.read_text().replace("dropout: 0.1", "dropout: 0.0"))  # random on each rank
    heedful.train(str(lm), tmp_path / "lm")
    recipe, conll = write_tagging_recipe(
        tmp_path, steps=10, every=5, characters="null", metric="accuracy"
    )
    encoder = f"{{type: pretrained, path: {tmp_path / 'lm'}, tune: {tune}}}"
    overrides = [f"model.encoder={encoder}", f"data.train={{type: conll, path: {conll}}}"]
    overrides.append("tokenizers.source={type: whitespace}")
    one = train(recipe, tmp_path / "one", *overrides, ranks=1)
    strategy = f"training.distributed_strategy={parallel}"
    two = train(recipe, tmp_path / "two", *overrides, strategy)
    assert_alike(one, two)


@pytest.mark.parametrize(
    ("parallel", "overrides"),
    [
        slow("fsdp", ["training.gradient_accumulation_steps=2"]),
        ("ddp", ["model.decoder.attention.score.type=relative-position-bias"]),
        slow("fsdp", ["model.decoder.attention.score.type=relative-position-bias"]),
        slow("fsdp", ["training.precision=bf16", "training.metric_for_best_model=bleu"]),
    ],
    ids=["tied weights", "no gradient, ddp", "no gradient, fsdp", "bf16, validated by decoding"],
)
def test_two_ranks_train_a_transformer(overrides, parallel, transformer, tmp_path):
    if "training.precision=bf16" in overrides and not has_bf16():
        pytest.skip("this CPU has no bf16: torch emulates it, and the ranks drift apart")
    one = train(transformer, tmp_path / "one", *overrides, ranks=1)
    two = train(
        transformer, tmp_path / "two", *overrides, f"training.distributed_strategy={parallel}"
    )
    if "training.precision=bf16" in overrides:
        losses = [line["loss"] for run in (one, two) for line in metrics(run)[-1:]]
        assert losses[0] == pytest.approx(losses[1], rel=0.05)
    else:
        assert_alike(one, two)


def test_only_rank_zero_logs_and_writes(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    assert "step 20" in said(run, "stderr")
    assert "reached max_steps=20" in said(run, "stdout")
    assert said(run, "stderr", rank=1) + said(run, "stdout", rank=1) == ""
    assert [line["step"] for line in metrics(run, "validation")] == [10, 20]
    assert_no_step_is_told_twice(run)


@pytest.mark.parametrize("parallel", [slow("ddp"), "fsdp"])
def test_two_resumed_ranks_match_uninterrupted_bitwise(parallel, recipe, tmp_path):
    how = [
        f"training.distributed_strategy={parallel}",
        "training.ema.decay=0.9",
        "model.encoder.dropout=0.2",
        "model.decoder.dropout=0.2",
    ]
    whole = train(recipe, tmp_path / "whole", *how)
    run = train(recipe, tmp_path / "run", *how, "training.max_steps=10")
    train(recipe, run, *how)
    assert_same_end(whole, run)


@pytest.mark.parametrize(
    ("before", "after", "parallel"),
    [(2, 1, "fsdp"), slow(1, 2, "fsdp"), slow(2, 1, "ddp"), (1, 2, "ddp")],
)
def test_run_resumes_with_another_number_of_ranks(before, after, parallel, recipe, tmp_path):
    how = [f"training.distributed_strategy={parallel}", "training.ema.decay=0.9"]
    whole = train(recipe, tmp_path / "whole", *how, ranks=1)
    run = train(recipe, tmp_path / "run", *how, "training.max_steps=10", ranks=before)
    train(recipe, run, *how, ranks=after)
    assert_alike(whole, run)
    assert_no_step_is_told_twice(run)


@pytest.mark.parametrize("target", [slow("torchrun"), 1])
def test_signal_to_any_rank_saves_all_at_one_step(target, recipe, tmp_path):
    run = tmp_path / "run"
    process = start(recipe, run, LONG)
    wait_for(has_taken(run, 10), process)
    os.kill(process.pid if target == "torchrun" else pids(run)[target], signal.SIGTERM)
    process.communicate(timeout=MAX_SECONDS)
    # Told to stop, torchrun itself always ends with 1.
    assert process.returncode == int(target == "torchrun")
    assert f"saved at step {saved_step(run)}; the same command resumes" in said(run, "stdout")
    longer = f"training.max_steps={saved_step(run) // 10 * 10 + 10}"
    train(recipe, run, longer)
    assert_same_end(train(recipe, tmp_path / "whole", longer), run)


@pytest.mark.parametrize("lost", [0, slow(1)])
def test_killed_rank_ends_the_others(lost, recipe, tmp_path):
    run = tmp_path / "run"
    process = start(recipe, run, LONG)
    wait_for(has_taken(run, 20), process)
    os.kill(pids(run)[lost], signal.SIGKILL)
    process.communicate(timeout=MAX_SECONDS)
    assert process.returncode == 1
    assert not pids(run)
    assert saved_step(run) >= 10


@pytest.mark.slow
def test_torchrun_restarts_after_a_kill(recipe, tmp_path):
    how = ["training.max_steps=60", "training.validate_every=20", SHARDED]
    whole = train(recipe, tmp_path / "whole", *how)
    run = tmp_path / "run"
    process = start(recipe, run, *how, restarts=1)
    wait_for(has_taken(run, 30), process)
    os.kill(pids(run)[1], signal.SIGKILL)
    process.communicate(timeout=MAX_SECONDS)
    assert process.returncode == 0
    assert "resuming from step" in said(run, "stderr")
    assert_same_end(whole, run)
    assert_no_step_is_told_twice(run)


@pytest.mark.slow
def test_corrupt_shards_detected(recipe, tmp_path):
    run = train(recipe, tmp_path / "run", SHARDED)
    whole = train(recipe, tmp_path / "whole", SHARDED)
    listing = last_checkpoint(run) / "shards" / ".metadata"
    contents = bytearray(listing.read_bytes())
    contents[len(contents) // 2] ^= 1
    listing.write_bytes(contents)
    train(recipe, run, SHARDED)
    assert "moved to" in said(run, "stderr")
    assert_same_end(whole, run)


HELD = """
import os, sys, time
from pathlib import Path
import heedful
from heedful.errors import HeedfulError

recipe, run, done = sys.argv[1:]
try:
    heedful.train(recipe, run)
except HeedfulError as error:
    print(error, file=sys.stderr)
if os.environ["RANK"] == "1":
    Path(done).touch()
while not Path(done).exists():  # rank 0 lives on
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_folder_of_another_trainer_raises_on_every_rank(recipe, tmp_path):
    """Also if rank 0 lives on, so that no closed connection ends the others."""
    run, script, done = tmp_path / "run", tmp_path / "script.py", tmp_path / "done"
    script.write_text(HELD)
    words = ["--nproc-per-node", "2", "--standalone", "--log-dir", f"{run}-logs", "--redirects"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "3", script]
    with lock_folder(run):
        process = subprocess.Popen([*command, recipe, run, done], stdout=-1, stderr=-1, text=True)
        try:
            _, err = process.communicate(timeout=MAX_SECONDS)
        finally:
            done.touch()
            process.terminate()
    assert process.returncode == 0, err
    assert f"process {os.getpid()} on " in said(run, "stderr")
    message = "rank 1 of 2: another rank has failed\n  see its messages\n"
    assert said(run, "stderr", rank=1) == message


def test_sequence_objective_with_fsdp_raises(recipe, tmp_path):
    run = tmp_path / "run"
    codes = run_two_ranks(recipe, run, SHARDED, "training.objective.type=minimum-risk")
    assert codes == [2, 2]
    assert "training.distributed_strategy: the objective 'minimum-risk' decodes" in said(
        run, "stderr"
    )
