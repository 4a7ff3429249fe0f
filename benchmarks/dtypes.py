"""Decoding speed of data types and backends on a CPU.

    python -m benchmarks.dtypes [--rounds 5] [--threads 2] [--only recurrent]

The models and workloads of `benchmarks.decoding`, in one process: heedful in fp32, bf16 and int8
as far as the processor has them, CTranslate2 through heedful's conversion, and Hugging Face's
`generate`, where they are installed. Systems take turns. Prints sentences per second (median
round), and the speed relative to the first system within each round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.peers import with_heedful
from benchmarks.peers.workload import NUM_STEPS, Batch, Workload, batches
from heedful.acceleration import ct2
from heedful.acceleration.precision import check_dtype, convert_model
from heedful.acceleration.registry import accelerate_for_inference
from heedful.errors import ConfigError
from heedful.search import LengthPenalty
from heedful.search.stopping import heuristic_stopping
from heedful.tokenization.vocabulary import EOS

TASKS = [
    Workload(beam, batch_size, num_sources)
    for batch_size, num_sources in ((32, 32), (1, 4))
    for beam in (5, 1)
]
Decode = Callable[[Batch, int], object]


def heedful_systems(kind: str) -> dict[str, Decode]:
    """Return heedful in each data type that the processor has."""
    systems: dict[str, Decode] = {}
    for dtype in ("fp32", "bf16", "int8"):
        try:
            check_dtype(dtype, torch.device("cpu"))
        except ConfigError as problem:
            print(f"  skipped: {problem}")
            continue
        torch.manual_seed(0)
        model = accelerate_for_inference(
            convert_model(with_heedful.build_plain(kind), dtype), "cpu"
        )
        systems[f"heedful {dtype}"] = partial(with_heedful.decode, model)
    return systems


def ct2_systems() -> dict[str, Decode]:
    """Return CTranslate2 in fp32 and int8, with outputs of the same length."""
    if not ct2.is_installed():
        return {}
    torch.manual_seed(0)
    model = with_heedful.build_plain("transformer")
    with torch.no_grad():  # never EOS, so that all steps run; they end at the limit
        model.decoder.output_head.projection.bias[EOS] = -1e4

    def decode(search: ct2.CTranslate2Search, batch: Batch, beam: int) -> object:
        options = ct2.BeamOptions(beam, LengthPenalty(), heuristic_stopping)
        return search.find_best(batch, [NUM_STEPS] * len(batch), options)

    return {
        f"CTranslate2 {name}": partial(decode, ct2.CTranslate2Search(model, compute_type=name))
        for name in ("float32", "int8")
    }


def hugging_face() -> dict[str, Decode]:
    try:
        from benchmarks.peers import with_transformers
    except ImportError:
        return {}
    model = with_transformers.build()
    return {"Hugging Face fp32": partial(with_transformers.decode, model)}


def measure(systems: dict[str, Decode], task: Workload, rounds: int) -> dict[str, list[float]]:
    """Time the systems in turn; the first round is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    for index in range(1 + rounds):
        for name in list(systems) if index % 2 else reversed(systems):
            start = time.perf_counter()
            for batch in batches(task):
                systems[name](batch, task.beam)
            if index:
                times[name].append(time.perf_counter() - start)
    return times


def report(task: Workload, times: dict[str, list[float]]) -> None:
    print(f"  {f'beam {task.beam}' if task.beam > 1 else 'greedy'}, batch {task.batch_size}")
    first = next(iter(times.values()))
    for name, taken in times.items():
        ratios = sorted(base / own for base, own in zip(first, taken, strict=True))
        speed = task.num_sources / statistics.median(taken)
        print(
            f"    {name:<20}{speed:8.1f} sentences/s   {statistics.median(ratios):5.2f} x "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed")
    parser.add_argument("--threads", type=int, default=2, help="number of threads")
    parser.add_argument("--only", choices=["recurrent", "transformer"], help="one of the models")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for kind in [arguments.only] if arguments.only else ["recurrent", "transformer"]:
        print(kind)
        systems = heedful_systems(kind)
        if kind == "transformer":
            systems = {**hugging_face(), **systems, **ct2_systems()}
        with torch.inference_mode():
            for task in TASKS:
                report(task, measure(systems, task, arguments.rounds))


if __name__ == "__main__":
    main()
