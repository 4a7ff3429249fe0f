"""What heedful adds to the work itself: in the training loop, in search, in saving, at the start.

    python -m benchmarks.overhead [loop] [search] [saving] [startup] [--rounds 9]

loop: the loop of `heedful train`, with its counters, checks, log and progress bar, beside forward,
loss, backward, clipping and optimizer, on the same batches of the demo. search: the share of the
time of greedy and beam search outside the model, with outputs of equal and of different lengths.
saving: a checkpoint, with checksums, manifest, fsync and renaming, beside a bare write of the same
tensors. startup: `import heedful` and `heedful --help`.
"""

import argparse
import copy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from typing_extensions import override

from benchmarks.harness import Spread, Table, describe_machine, ratios, seconds_of, take_turns
from benchmarks.peers.with_heedful import build
from benchmarks.peers.workload import NUM_STEPS, Workload, batches
from heedful.acceleration.registry import accelerate_for_training
from heedful.data.shuffling import DataCursor
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.experiment import load_data
from heedful.experiment.job import TrainingJob
from heedful.experiment.plan import TrainingPlan
from heedful.experiment.train import run_training
from heedful.models.base import DecodableModel
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.search import LengthPenalty, StepOutput
from heedful.training.checkpoints import CheckpointConfig, CheckpointManager, Snapshot
from heedful.training.distributed import SINGLE_PROCESS
from heedful.training.objectives import negative_log_likelihood

STEPS_IN_A_BLOCK = 10
BATCH_SIZE, NUM_SOURCES = 32, 64
MEGABYTES = 100  # of weights and Adam's two moments together
NUM_TENSORS = 60  # about what a small Transformer has
TIMED_IMPORT = (
    "import time; start = time.perf_counter(); import heedful; "
    "print(time.perf_counter() - start); import sys; assert 'torch' not in sys.modules"
)


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


class ListedBatches(list[Any]):
    """Batches in memory."""

    cursor = DataCursor(0, 0)


def bench_loop(rounds: int) -> None:
    """Print milliseconds per step of both loops."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, Path(name, "console.txt").open("w") as file:
        recipe, run = load_recipe("latin-demo", ["training.validate_every=1000000"]), Run(name)
        console = Console(file=file)
        data_module = load_data(recipe, run, console)
        job = TrainingJob(
            TrainingPlan(recipe, run, torch.device("cpu"), console),
            data_module,
            CheckpointManager(run.checkpoints, recipe.training.checkpoints, lambda line: None),
            SINGLE_PROCESS,
        )
        model = copy.deepcopy(job.trainer.model).train()
        bare = BareLoop(accelerate_for_training(model, "cpu"), job)
        block = ListedBatches(islice(data_module.train_batches(DataCursor(0, 0)), STEPS_IN_A_BLOCK))
        with job.callbacks() as callbacks:
            loops = {
                "heedful train": lambda: run_training(job, block, callbacks),
                "bare loop": lambda: bare(block),
            }
            measures = {loop: seconds_of(work) for loop, work in loops.items()}
            times = take_turns(measures, rounds=rounds)
    table = Table("loop", "milliseconds a step", "heedful takes")
    for loop, taken in times.items():
        milliseconds = Spread.of([1000 * seconds / STEPS_IN_A_BLOCK for seconds in taken])
        ratio = ratios(times, "bare loop", "heedful train") if loop == "bare loop" else None
        table.add(loop, milliseconds.format(".1f"), f"{ratio.format('.3f')} x" if ratio else "")


class TimedModel(DecodableModel):
    """A model that measures the time spent in it."""

    def __init__(self, model: DecodableModel) -> None:
        self.model = model
        self.seconds = 0.0

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return self._time(lambda: self.model.initial_state(sources))

    @override
    def step(self, tokens: Tensor, state: Any) -> StepOutput[Any]:
        return self._time(lambda: self.model.step(tokens, state))

    def _time(self, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = call()
        self.seconds += time.perf_counter() - start
        return result


LENGTHS: dict[str, Callable[[SourceBatch], Tensor]] = {
    "equal": lambda sources: torch.full_like(sources.lengths, NUM_STEPS - 1),
    "different": lambda sources: sources.lengths,  # from 6 to about 25 tokens
}


def share_outside(
    model: DecodableModel, task: Workload, lengths: Callable[[SourceBatch], Tensor]
) -> float:
    """Decode once and return the share of the time outside the model.

    With random parameters EOS is one token of 8,000, so all outputs reach their maximum length.
    """
    timed, work = TimedModel(model), [collate_sources(batch) for batch in batches(task)]
    start = time.perf_counter()
    for sources in work:
        timed.search(
            sources,
            beam_size=task.beam,
            max_lengths=lengths(sources),
            length_penalty=LengthPenalty(),
        )
    return 1 - timed.seconds / (time.perf_counter() - start)


def bench_search(rounds: int) -> None:
    """Print the share of the time that ranking, bookkeeping and reordering take."""
    torch.manual_seed(0)
    model = build("transformer")
    table = Table("search", "output lengths", "outside the model", "at most")
    for beam in (1, 5):
        task = Workload(beam, BATCH_SIZE, NUM_SOURCES)
        for name, lengths in LENGTHS.items():
            shares = [share_outside(model, task, lengths) for _ in range(1 + rounds)][1:]
            table.add(f"beam {beam}", name, Spread.of(shares).format(".1%"), "10 %")


def snapshot(megabytes: int) -> Snapshot:
    """Return weights and the state of Adam."""
    length = megabytes * 1_000_000 // 4 // 3 // NUM_TENSORS
    weights = {f"layer.{index}": torch.randn(length) for index in range(NUM_TENSORS)}
    moments: dict[str, Tensor] = {}
    for name in weights:
        moments[f"optimizer.{name}.exp_avg"] = torch.randn(length)
        moments[f"optimizer.{name}.exp_avg_sq"] = torch.randn(length)
    return Snapshot(0, weights, moments, {"seconds": 0.0})


def bench_saving(rounds: int) -> None:
    """Print seconds of a checkpoint and of a bare write, on the disk of the current folder."""
    saved, steps = snapshot(MEGABYTES), iter(range(1_000_000))
    with tempfile.TemporaryDirectory(dir=".", prefix=".saving-") as name:
        bare, folder = Path(name, "bare"), Path(name, "checkpoints")
        bare.mkdir()
        manager = CheckpointManager(folder, CheckpointConfig(keep_last=1, keep_best=0), print)

        def write() -> float:
            tensors = {"weights": saved.model_state_dict, "tensors": saved.training_tensors}
            os.sync()  # earlier writes must not count
            start = time.perf_counter()
            for name, group in tensors.items():
                save_file(dict(group), bare / name)
                with (bare / name).open("rb") as file:
                    os.fsync(file.fileno())
            return time.perf_counter() - start

        def save() -> float:
            os.sync()
            start = time.perf_counter()
            manager.save(saved._replace(step=next(steps)))
            taken = time.perf_counter() - start
            manager.wait_until_verified()  # in the background, while training continues
            return taken

        times = take_turns({"checkpoint": save, "bare write": write}, rounds=rounds)
        manager.close()
    table = Table(f"{MEGABYTES} MB", "seconds", "a checkpoint takes", "at most")
    for label, taken in times.items():
        ratio = ratios(times, "bare write", "checkpoint") if label == "bare write" else None
        limit = "1.2 x" if ratio else ""
        text = f"{ratio.format('.2f')} x" if ratio else ""
        table.add(label, Spread.of(taken).format(".3f"), text, limit)


def bench_startup(rounds: int) -> None:
    """Print the times of fresh processes."""

    def import_seconds() -> float:
        command = [sys.executable, "-c", TIMED_IMPORT]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def show_help() -> None:
        subprocess.run([sys.executable, "-m", "heedful", "--help"], capture_output=True, check=True)

    measures = {"import heedful": import_seconds, "heedful --help": seconds_of(show_help)}
    table = Table("process", "milliseconds", "at most")
    limits = {"import heedful": 150, "heedful --help": 500}
    for name, taken in take_turns(measures, rounds=rounds).items():
        milliseconds = Spread.of([1000 * seconds for seconds in taken])
        table.add(name, milliseconds.format(), limits[name])


SECTIONS = {
    "loop": bench_loop,
    "search": bench_search,
    "saving": bench_saving,
    "startup": bench_startup,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed")
    arguments = parser.parse_args()
    print(describe_machine())
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments.rounds)


if __name__ == "__main__":
    main()
