"""Training and decoding on a GPU, as plain steps and as CUDA graphs, side by side.

    python -m benchmarks.gpu [train] [decode] [--quick]

Needs torch and this repository alone. Batches are full and of one shape: 32 tokens on each side for
training, sources of 16 and outputs of exactly 20 tokens for decoding; vocabularies of 8,000 tokens,
random parameters. Counts target tokens, and sentences. Both forms take turns; times are medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import product

import torch

from heedful.acceleration import captured_decoding
from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.batching import SourceBatch
from heedful.experiment.environment import configure_backends
from heedful.experiment.trainer_setup import build_trainer
from heedful.recipes import load_recipe
from heedful.search import BeamSearchOptions, LengthPenalty
from heedful.search.logits_processors import MinLength
from heedful.tasks.task import BatchShape, VocabSizes
from heedful.tokenization.vocabulary import EOS

SIZES = VocabSizes(8000, 8000)
LENGTH, SOURCE_LENGTH, OUTPUT_LENGTH = 32, 16, 20
NUM_WARMUP = 4
TRAINED = {
    "transformer-2017-base": 781,  # pairs per batch
    "bahdanau-2015-multi30k": 256,
    "luong-2015-general-multi30k": 256,
}
DECODED = ["transformer-2017-base", "bahdanau-2015-multi30k"]
SEARCHES = [(1, 1), (64, 1), (512, 1), (64, 5)]  # sentences, beam size


def median_seconds(runs: list[Callable[[], object]], seconds: float) -> list[float]:
    """Return the median time of each function; they take turns."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs * NUM_WARMUP:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for run, measured in zip(runs, times, strict=True):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            measured.append(time.perf_counter() - start)
    return [statistics.median(measured) for measured in times]


def print_row(name: str, count: float, medians: list[float]) -> None:
    """Print a row of the table: items per second of both forms, and their ratio."""
    plain, captured = (count / median for median in medians)
    print(f"| {name} | {plain:,.0f} | {captured:,.0f} | {captured / plain:.1f} |", flush=True)


def compare_training(name: str, num_rows: int, precision: str, seconds: float) -> None:
    """Print target tokens per second of training."""
    runs: list[Callable[[], object]] = []
    for is_captured in (False, True):
        recipe = load_recipe(
            name,
            [
                f"training.precision={precision}",
                f"training.cuda_graphs={str(is_captured).lower()}",
                f"training.batching.max_tokens={num_rows * 2 * LENGTH}",
            ],
        )
        trainer = build_trainer(recipe, SIZES, lambda step: 1e-4, device=torch.device("cuda"))
        trainer.model.train()
        shape = BatchShape(LENGTH, LENGTH)
        batch = recipe.task.dummy_batch(recipe.model, SIZES, shape, num_rows)
        runs.append(lambda trainer=trainer, batch=batch: trainer.train_step([batch]))  # type: ignore[misc]
    print_row(f"{name}, {precision}", num_rows * LENGTH, median_seconds(runs, seconds))


def compare_decoding(
    name: str, num_rows: int, beam_size: int, dtype: torch.dtype, seconds: float
) -> None:
    """Print sentences per second of greedy or beam search."""
    recipe = load_recipe(name)
    model = recipe.task.build_model(recipe, SIZES).to("cuda", dtype)
    model = accelerate_for_inference(model, "cuda")
    tokens = torch.randint(4, SIZES.source, (num_rows, SOURCE_LENGTH), device="cuda")
    sources = SourceBatch(tokens, torch.full((num_rows,), SOURCE_LENGTH, device="cuda"))
    limits = torch.full((num_rows,), OUTPUT_LENGTH, device="cuda")
    options = BeamSearchOptions(processors=(MinLength(limits, eos=EOS),))

    def search(device_type: str) -> None:
        captured_decoding.GRAPH_DEVICE_TYPE = device_type
        model.search(
            sources,
            beam_size=beam_size,
            max_lengths=limits,
            length_penalty=LengthPenalty(),
            options=options,
        )

    runs = [lambda: search("none"), lambda: search("cuda")]
    label = f"{name}, {str(dtype).removeprefix('torch.')}, {num_rows} sentences, beam {beam_size}"
    print_row(label, num_rows, median_seconds(runs, seconds))


def main() -> None:
    """Print a Markdown table for each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="*", help="train, decode; both by default")
    parser.add_argument("--quick", action="store_true", help="one second per row")
    arguments = parser.parse_args()
    work, seconds = arguments.work or ["train", "decode"], 1.0 if arguments.quick else 4.0
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return
    configure_backends(torch.device("cuda"))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    if "train" in work:
        print("| training, target tokens/s | plain | captured | ratio |\n|---|---|---|---|")
        for (name, num_rows), precision in product(TRAINED.items(), ("fp32", "bf16")):
            compare_training(name, num_rows, precision, seconds)
    if "decode" in work:
        print("\n| decoding, sentences/s | plain | captured | ratio |\n|---|---|---|---|")
        dtypes = torch.float32, torch.bfloat16
        for name, (num_rows, beam_size), dtype in product(DECODED, SEARCHES, dtypes):
            compare_decoding(name, num_rows, beam_size, dtype, seconds)


if __name__ == "__main__":
    main()
