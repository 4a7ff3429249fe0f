"""Training, decoding, attention and their growth on a GPU, beside other systems in the same run.

    python -m benchmarks.gpu [SECTION ...] [--quick]

Needs torch, triton and this repository; Hugging Face's models are measured if transformers is
installed, JoeyNMT if it can be imported. Systems take turns; a cell is the median with quartiles in
brackets, and a ratio is the median of the ratios within rounds. With `--small` models and batches
are tiny, which tries the script on a CPU.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.gpu import additive, endtoend, floors, growth, kernels, speed
from benchmarks.gpu.workload import Settings
from benchmarks.harness import describe_machine
from heedful.experiment.environment import configure_backends

SECTIONS = {
    "floors": floors.bench,
    "train": speed.bench_training,
    "decode": speed.bench_decoding,
    "additive": additive.bench,
    "kernels": kernels.bench,
    "growth": growth.bench,
    "endtoend": endtoend.bench,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="half a second per system and row")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose title contains it")
    parser.add_argument("--source", type=Path, metavar="FILE", help="endtoend: source sentences")
    parser.add_argument("--target", type=Path, metavar="FILE", help="endtoend: their translations")
    parser.add_argument("--seconds", type=float, help="per system and row; endtoend: per run")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section is called {min(unknown)!r}; choose from {', '.join(SECTIONS)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return
    configure_backends(torch.device(arguments.device))
    print(describe_machine())
    settings = Settings(
        device=arguments.device,
        seconds=arguments.seconds or (0.5 if arguments.quick else 3.0),
        training_seconds=arguments.seconds or (20.0 if arguments.quick else 60.0),
        is_small=arguments.small,
        only=arguments.only,
        files=(arguments.source, arguments.target) if arguments.source else None,
        compiles=not arguments.no_compile,
    )
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](settings)


if __name__ == "__main__":
    main()
