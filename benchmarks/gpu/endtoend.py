"""Training on a parallel corpus as users do it, beside JoeyNMT and Hugging Face Marian.

Counts real target tokens over the second half of a time budget: data, logging and padding are
included, tokenization and warm-up are not. heedful runs as `heedful train`; JoeyNMT runs its own
loop on the same token ids; Marian takes the batches of heedful, which sort by length. The spread is
that of windows of the second half.
"""

import json
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from typing_extensions import override

from benchmarks.gpu.references import MarianLoss, build_marian, has_transformers
from benchmarks.gpu.speed import plain_update
from benchmarks.gpu.workload import Settings, recipe_of, transformer_sizes
from benchmarks.harness import ROOT, Spread, Table
from heedful.data.shuffling import DataCursor
from heedful.experiment import load_data, train
from heedful.pytree import map_tensors
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task_data import DataModule
from heedful.training.callbacks import Callback, StepMetrics

NUM_TOKENS = 16_384  # of a batch, on its longer side, with padding
NUM_WINDOWS = 8
PEER_SHARE = 2  # peers capture nothing, so half of the time shows their speed
MODELS = {
    "Transformer base": "tokenizers.tokenizer={type: subword, vocab_size: %d}",
    "Bahdanau": "tokenizers={type: shared, tokenizer: {type: subword, vocab_size: %d}}",
}


class Step(NamedTuple):
    """When a step began or ended, and what it contained."""

    seconds: float
    num_targets: int
    num_tokens: int = 0
    num_positions: int = 0


class StepTimes(Callback):
    """Records the steps of a training."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self.steps.append(Step(time.perf_counter(), metrics.num_targets))


def bench(settings: Settings) -> None:
    """Print target tokens per second of whole trainings."""
    if settings.files is None:
        print("\nendtoend: left out; name a corpus with --source FILE --target FILE")
        return
    seconds = settings.training_seconds
    print(f"\nTraining for {seconds:.0f} s, batches of {NUM_TOKENS:,} tokens per side")
    columns = "target tokens/s", "padding", "shapes in an epoch", "graphs", "seconds to capture"
    table = Table("model", "system", *columns)
    for model in MODELS:
        if settings.includes(model):
            with TemporaryDirectory() as folder:
                _bench_model(model, Path(folder), table, settings)


def _bench_model(model: str, folder: Path, table: Table, settings: Settings) -> None:
    run, callback = Run(folder / "run"), StepTimes()
    vocab_size = 400 if settings.is_small else 8000
    max_tokens = 512 if settings.is_small else 2 * NUM_TOKENS
    overrides = [
        MODELS[model] % vocab_size,
        f"training.batching.max_tokens={max_tokens}",
        f"training.max_minutes={settings.training_seconds / 60}",
        *("training.max_steps=1000000", "training.validate_every=1000000"),
        *("training.validate_every_epochs=1000000", "training.validation_metrics=[]"),
        "training.num_logged_samples=0",
    ]
    recipe = recipe_of(model, settings, *overrides)
    source, target = settings.files or ()
    train(
        recipe,
        run.folder,
        source=source,
        target=target,
        device=settings.device,
        callbacks=[callback],
        console=Console(quiet=True),
    )
    recipe = run.read_recipe()
    data_module = load_data(recipe, run, Console(quiet=True))
    padding, num_shapes = _padding(recipe, data_module)
    log = (run.folder / "train.log").read_text()
    captured = re.search(r"(\d+) batch shapes were captured in ([\d.]+) s", log)
    graphs = captured.groups() if captured else ("-", "-")
    speed = speed_of(callback.steps).format()
    table.add(model, "heedful train", speed, f"{padding:.0%}", num_shapes, *graphs)
    for line in log.splitlines():
        if "without CUDA graphs" in line:
            print(f"heedful, {model}: {line}")
    if model == "Transformer base" and has_transformers():
        steps = _train_marian(data_module, settings, recipe)
        label = "Hugging Face Marian, batches of heedful"
        table.add(model, label, speed_of(steps).format(), f"{padding:.0%}", "", "", "")
    _bench_joeynmt(model, folder, data_module, table, settings)


def speed_of(steps: list[Step]) -> Spread:
    """Return target tokens per second in windows of the second half of the time.

    Steps may be reported several at a time, so what was done by a time is interpolated.
    """
    times = np.array([step.seconds for step in steps])
    targets = np.cumsum([step.num_targets for step in steps])
    edges = np.linspace((times[0] + times[-1]) / 2, times[-1], NUM_WINDOWS + 1)
    done = np.interp(edges, times, targets)
    return Spread.of((np.diff(done) / np.diff(edges)).tolist())


def _padding(recipe: Recipe, data_module: DataModule) -> tuple[float, int]:
    """Return the share of padding and the number of batch shapes in the first epoch."""
    stream = data_module.train_batches(DataCursor(0, 0))
    num_tokens, num_positions, shapes = 0, 0, set()
    for batch in stream:
        padded = recipe.task.data.pad_batch(recipe, batch)
        num_tokens += batch.num_tokens
        num_positions += padded.num_positions
        shapes.add((padded.sources.tokens.shape, padded.targets.shape))
        if stream.cursor.epoch > 0:
            break
    return 1 - num_tokens / max(num_positions, 1), len(shapes)


def _train_marian(data_module: DataModule, settings: Settings, recipe: Recipe) -> list[Step]:
    vocab_size = len(data_module.tokenizers.source)
    sizes = transformer_sizes(settings)._replace(vocab_size=vocab_size)
    model = MarianLoss(build_marian(sizes), has_padding=True).to(settings.device).train()
    update = plain_update(model, settings.precisions[0], settings.device)
    steps: list[Step] = []
    for batch in data_module.train_batches(DataCursor(0, 0)):
        num_targets = batch.num_targets
        update(map_tensors(lambda tensor: tensor.to(settings.device), batch))
        if settings.device == "cuda":
            torch.cuda.synchronize()
        steps.append(Step(time.perf_counter(), num_targets))
        if steps[-1].seconds - steps[0].seconds > settings.training_seconds / PEER_SHARE:
            break
    return steps


def _bench_joeynmt(
    model: str, folder: Path, data_module: DataModule, table: Table, settings: Settings
) -> None:
    if find_spec("joeynmt") is None:
        print("left out: JoeyNMT is not installed")
        return
    _write_tokens(folder, data_module, settings)
    request = {
        "model": model,
        "seconds": settings.training_seconds / PEER_SHARE,
        "device": settings.device,
        "size": 64 if settings.is_small else 512,
        "num_tokens": 256 if settings.is_small else NUM_TOKENS,
    }
    command = [sys.executable, "-m", "benchmarks.peers.training_joeynmt", folder]
    ended = subprocess.run(
        [*command, json.dumps(request)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        print(f"left out: JoeyNMT: {(ended.stderr.strip().splitlines() or ['no message'])[-1]}")
        return
    steps = [Step(*step) for step in json.loads(ended.stdout)["steps"]]
    num_tokens, num_positions = (
        sum(column) for column in zip(*(step[2:] for step in steps), strict=True)
    )
    padding = f"{1 - num_tokens / num_positions:.0%}"
    table.add(model, "JoeyNMT 2.3.0", speed_of(steps).format(), padding, "", "", "")


def _write_tokens(folder: Path, data_module: Any, settings: Settings) -> None:
    """Write the corpus as token ids, and their vocabulary."""
    tokenizers = data_module.tokenizers
    sides = zip(("src", "trg"), settings.files or (), tokenizers, strict=True)
    for name, path, tokenizer in sides:
        lines = path.read_text().splitlines()
        ids = [" ".join(map(str, tokenizer.encode(line))) for line in lines]
        (folder / f"train.{name}").write_text("\n".join(ids) + "\n")
    words = range(4, len(tokenizers.source))
    (folder / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words))
