"""Decoding speed of data types and backends on a CPU.

    python -m benchmarks.dtypes [--rounds 5] [--threads 2] [--only recurrent]

The models and workloads of `benchmarks.decoding`, in one process: heedful in fp32, bf16 and int8
as far as the processor has them, its ONNX graphs (greedy alone: their runner has no beam search),
CTranslate2 through heedful's conversion, and Hugging Face's `generate`, where they are installed.
Prints sentences per second, and how many times as fast heedful in fp32 is as each of the others.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Table, add_rows, describe_machine, seconds_of, take_turns
from benchmarks.peers import with_heedful
from benchmarks.peers.workload import NUM_STEPS, VOCABULARY, Batch, Workload, batches
from heedful.acceleration import ct2
from heedful.acceleration.precision import check_dtype, convert_model
from heedful.acceleration.registry import accelerate_for_inference
from heedful.conversion.onnx_export import write_graphs
from heedful.conversion.onnx_runner import OnnxModel
from heedful.errors import ConfigError
from heedful.search import LengthPenalty
from heedful.search.stopping import heuristic_stopping
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.vocabulary import BOS, EOS

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
            print(f"left out: {problem}")
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


def onnx_systems(kind: str, num_threads: int) -> dict[str, Decode]:
    """Return the graphs of `heedful export --to onnx`, run by onnxruntime step by step."""
    if not (find_spec("onnxruntime") and find_spec("onnxscript")):
        return {}
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_graphs(
            with_heedful.build_plain(kind), VocabSizes(VOCABULARY, VOCABULARY), Path(folder)
        )
        model = OnnxModel(folder, num_threads=num_threads)

    def decode(batch: Batch, beam: int) -> None:
        assert beam == 1, "the runner has no beam search"
        state, tokens = model.encode(batch), np.full(len(batch), BOS)
        for _ in range(NUM_STEPS):
            outputs, state = model.step(tokens, state)
            tokens = outputs["log_probs"].argmax(axis=-1)

    return {"ONNX fp32": decode}


def hugging_face() -> dict[str, Decode]:
    try:
        from benchmarks.peers import with_transformers
    except ImportError:
        return {}
    model = with_transformers.build()
    return {"Hugging Face fp32": partial(with_transformers.decode, model)}


def decode_all(decode: Decode, task: Workload) -> None:
    """Decode all batches of a workload."""
    for batch in batches(task):
        decode(batch, task.beam)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed")
    parser.add_argument("--threads", type=int, default=2, help="number of threads")
    parser.add_argument("--only", choices=["recurrent", "transformer"], help="one of the models")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(describe_machine())
    for kind in [arguments.only] if arguments.only else ["recurrent", "transformer"]:
        systems = heedful_systems(kind) | onnx_systems(kind, arguments.threads)
        if kind == "transformer":
            systems |= hugging_face() | ct2_systems()
        table = Table(kind, "system", "sentences/s", f"{next(iter(systems))} is faster by")
        with torch.inference_mode():
            for task in TASKS:
                title = f"{f'beam {task.beam}' if task.beam > 1 else 'greedy'}, {task.batch_size}"
                measures = {
                    name: seconds_of(partial(decode_all, decode, task))
                    for name, decode in systems.items()
                    if task.beam == 1 or not name.startswith("ONNX")
                }
                times = take_turns(measures, rounds=arguments.rounds)
                add_rows(table, title, times, count=task.num_sources, style=",.1f")


if __name__ == "__main__":
    main()
