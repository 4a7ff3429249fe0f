"""Overhead of the training loop beside a bare PyTorch loop.

Trains the model of the demo twice on the same batches, in alternating blocks of steps: with a loop
of forward, loss, backward, clipping and optimizer, and with the loop of `heedful train`, including
its counters, checks, log and progress bar. Prints milliseconds per step and the median ratio.
Validation and checkpoints are left out; benchmarks/saving.py measures the latter.
"""

import argparse
import copy
import os
import statistics
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from rich.console import Console
from torch import nn
from torch.nn.utils import clip_grad_norm_

from heedful.data.batching import DataCursor
from heedful.experiment import load_data
from heedful.experiment.job import TrainingJob
from heedful.experiment.train import run_training
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.training.checkpoints import CheckpointManager
from heedful.training.distributed import SINGLE_PROCESS
from heedful.training.objectives import negative_log_likelihood

STEPS_IN_A_BLOCK = 10


class BareLoop:
    """What everyone writes first."""

    def __init__(self, model: nn.Module, job: TrainingJob) -> None:
        self.model = model
        self.optimizer = job.config.optimizer.build(model)
        self.smoothing = job.config.label_smoothing

    def __call__(self, batches: list[Any]) -> None:
        """Learn from each batch."""
        for batch in batches:
            log_probs, *_ = self.model(batch, need_weights=False)
            loss = negative_log_likelihood(log_probs, batch.targets, label_smoothing=self.smoothing)
            (loss / (batch.targets != 0).sum()).backward()
            clip_grad_norm_(self.model.parameters(), 1.0)
            loss.item()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


def seconds(action: Any, batches: list[Any]) -> float:
    began = time.perf_counter()
    action(batches)
    return time.perf_counter() - began


class ListedBatches(list[Any]):
    """Batches in memory."""

    cursor = DataCursor(0, 0)


def bench(folder: Path, blocks: int) -> None:
    console = Console(file=(folder / "console.txt").open("w"))
    recipe = load_recipe("latin-demo", ["training.validate_every=1000000"])
    run = Run(folder / "run")
    data_module = load_data(recipe, run, console)
    checkpoints = CheckpointManager(run.checkpoints, recipe.training.checkpoints, lambda line: None)
    job = TrainingJob(
        recipe,
        run,
        data_module,
        checkpoints,
        SINGLE_PROCESS,
        device=torch.device("cpu"),
        console=console,
    )
    bare = BareLoop(copy.deepcopy(job.trainer.model).train(), job)
    batches = ListedBatches(islice(data_module.train_batches(DataCursor(0, 0)), STEPS_IN_A_BLOCK))
    with job.callbacks() as callbacks:

        def engine(batches: ListedBatches) -> None:
            run_training(job, batches, callbacks)

        for action in (bare, engine):
            action(batches)  # warm up
        # In alternating order: a machine that grows slower must not favor one.
        pairs = [
            (seconds(bare, batches), seconds(engine, batches))
            if block % 2
            else tuple(reversed((seconds(engine, batches), seconds(bare, batches))))
            for block in range(blocks)
        ]
    bare_ms, engine_ms = (
        1000 * statistics.median(each) / STEPS_IN_A_BLOCK for each in zip(*pairs, strict=True)
    )
    ratio = statistics.median(engine / bare for bare, engine in pairs)
    print(f"a bare loop {bare_ms:.1f} ms a step, the engine {engine_ms:.1f} ms")
    print(f"the engine takes {ratio:.3f} x the bare loop (median of {blocks} blocks in turn)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=30, help="how often each is timed")
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        bench(Path(folder), parser.parse_args().blocks)


if __name__ == "__main__":
    main()
