"""Running heedful's commands in tests, and the tiny recipe they run."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import typer.main

LETTERS = "abcdefgh"
STOP_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1

RECIPE = """
info: {{summary: letters}}
data:
  train: {{type: parallel-files, source: {folder}/source.txt, target: {folder}/target.txt}}
tokenizers:
  type: separate
  source: {{type: word}}
  target: {{type: word}}
model:
  encoder: {{type: recurrent, embedding_size: 32, hidden_size: 32}}
  decoder:
    type: recurrent
    embedding_size: 32
    hidden_size: 32
    wiring: {{type: step-then-attend}}
    attention: {{score: {{type: bilinear}}}}
training:
  max_steps: {steps}
  validate_every: {every}
  batching: {{max_tokens: 512}}
  optimizer: {{learning_rate: 1e-2}}
  lr_scheduler: {{type: linear, warmup_steps: 10}}
decoding: {{max_source_length: 40}}
"""


def write_recipe(
    folder: Path, letters: str = LETTERS, *, steps: int = 250, every: int = 125
) -> Path:
    """Write a corpus to copy and a recipe that learns it; give the recipe's path."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    lines = [
        " ".join(chance.choice(letters) for _ in range(chance.randint(1, 5))) for _ in range(600)
    ]
    for side in ("source", "target"):
        (folder / f"{side}.txt").write_text("\n".join(lines) + "\n")
    recipe = folder / "letters.yaml"
    recipe.write_text(RECIPE.format(folder=folder, steps=steps, every=every))
    return recipe


def train_tiny(run: Path, letters: str) -> Path:
    """Train the tiny recipe into a folder."""
    import heedful

    heedful.train(str(write_recipe(run.parent, letters)), run)
    return run


def write_random_run(folder: Path, settings: dict, sources, targets, *, seed: int) -> Path:
    """Write the run of a model with random parameters; its tokenizers learn from these texts."""
    import torch

    from heedful.config import validate_settings
    from heedful.recipes import Recipe
    from heedful.runs import Run
    from heedful.storage.state_dict import unique_weights

    torch.manual_seed(seed)
    recipe = validate_settings(Recipe, settings, location="test")
    tokenizers = recipe.tokenizers.train(sources, targets)
    model = recipe.model.build(
        source_vocab_size=len(tokenizers.source), target_vocab_size=len(tokenizers.target)
    )
    run = Run(folder)
    run.folder.mkdir()
    run.initialize(recipe, tokenizers)
    run.save_model(unique_weights(model), step=0)
    return run.folder


class Finished:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


get_command_once = cache(typer.main.get_command)


def heedful(capsys, monkeypatch, *words: str | Path, stdin: str = "") -> Finished:
    """Run a command in this process; typer builds all commands once, not every time."""
    import io

    from heedful.cli.main import main

    monkeypatch.setattr("typer.main.get_command", get_command_once)
    monkeypatch.setattr(sys, "argv", ["heedful", *map(str, words)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    capsys.readouterr()
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        main()
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:  # a command that has trained ignores signals until its process ends
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Finished(code, *capsys.readouterr())


def start_heedful(*words: str | Path, **options) -> subprocess.Popen:
    """Start a command in a process of its own."""
    command = [sys.executable, "-m", "heedful", *map(str, words)]
    return subprocess.Popen(command, text=True, **options)


@contextmanager
def without_privileges():
    """Drop root privileges, under which nothing is forbidden."""
    if os.geteuid() != 0:
        yield
        return
    os.chmod(".", 0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def mounted(folder, options):
    """A disk of its own at a folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    import pytest

    if (
        not shutil.which("mount")
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("a disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def reserved_port():
    """Yield a port that a program can listen on, and that no other program gets meanwhile."""
    with socket.socket() as holder:  # it is bound, but does not listen
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
