"""Time of saving a checkpoint beside a bare write of the same tensors.

Bare is safetensors' own `save_file` and an fsync for each of the two files. A checkpoint adds
checksums, a manifest, fsync and rename of folders; it is verified in the background while training
continues. Both alternate on the disk of the current folder, and the limit is on the median ratio.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from heedful.training.checkpoints import CheckpointConfig, CheckpointManager, Snapshot

SIZES = {100: 15, 500: 9}  # megabytes of weights and Adam's two moments together: repeats
MAX_RATIO = 1.2
NUM_TENSORS = 60  # about what a small Transformer has


def snapshot(megabytes: int) -> Snapshot:
    length = megabytes * 1_000_000 // 4 // 3 // NUM_TENSORS
    weights = {f"layer.{index}": torch.randn(length) for index in range(NUM_TENSORS)}
    moments: dict[str, Tensor] = {}
    for name in weights:
        moments[f"optimizer.{name}.exp_avg"] = torch.randn(length)
        moments[f"optimizer.{name}.exp_avg_sq"] = torch.randn(length)
    return Snapshot(0, weights, moments, {"seconds": 0.0})


def seconds(work: Callable[[], None]) -> float:
    os.sync()  # earlier writes must not count
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bare_seconds(folder: Path, saved: Snapshot) -> float:
    def write() -> None:
        for name, tensors in (
            ("weights", saved.model_state_dict),
            ("tensors", saved.training_tensors),
        ):
            path = folder / name
            save_file(dict(tensors), path)
            with path.open("rb") as file:
                os.fsync(file.fileno())

    taken = seconds(write)
    for path in folder.iterdir():
        path.unlink()
    return taken


def main() -> None:
    print("saving   bare      checkpoint   median ratio (from - to)")
    for megabytes, repeats in SIZES.items():
        saved, times = snapshot(megabytes), []
        with tempfile.TemporaryDirectory(dir=".", prefix=".saving-") as folder:
            plain, ours = Path(folder, "bare"), Path(folder, "checkpoints")
            plain.mkdir()
            checkpoints = CheckpointManager(ours, CheckpointConfig(keep_last=1, keep_best=0), print)
            for step in range(repeats + 1):
                bare = bare_seconds(plain, saved)
                now = saved._replace(step=step)
                taken = seconds(partial(checkpoints.save, now))
                checkpoints.wait_until_verified()
                times.append((bare, taken))
            checkpoints.close()
        report(megabytes, times[1:])  # the first is a warm-up


def report(megabytes: int, times: list[tuple[float, float]]) -> None:
    bare, ours = (statistics.median(seconds) for seconds in zip(*times, strict=True))
    ratios = [taken / plain for plain, taken in times]
    print(
        f"{megabytes:4} MB  {bare:6.3f} s  {ours:6.3f} s     {statistics.median(ratios):4.2f}"
        f" ({min(ratios):.2f} - {max(ratios):.2f}; at most {MAX_RATIO})"
    )


if __name__ == "__main__":
    main()
