"""Training steps on a CPU beside other systems with models of the same size.

    python -m benchmarks.training [--quick] [--only recurrent] [--rounds 9] [--profile]

A Transformer with 3+3 layers beside `nn.Transformer` and Hugging Face's Marian, and an RNN
(bidirectional LSTM encoder with two layers, LSTM decoder with additive attention and input feeding)
beside a loop over `nn.LSTMCell`: hidden size 256, vocabulary 8,000, fp32, two threads. A step is
forward pass, loss with label smoothing, backward pass, clipping and fused AdamW, on random batches
of 40 pairs: of 20 tokens on each side, and of 15 to 25. Systems take turns. Needs torch and this
repository; Marian is measured where transformers is installed. On a machine of your own, set
OMP_WAIT_POLICY=ACTIVE; `--cpu-seconds` compares the processor time of one thread beside others.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.gpu.references import (
    MarianLoss,
    PlainBahdanau,
    PlainTransformer,
    build_marian,
    has_transformers,
)
from benchmarks.gpu.speed import plain_step
from benchmarks.gpu.workload import BAHDANAU, FIRST_TOKEN, VOCABULARY, Sizes, vocab_sizes
from benchmarks.harness import (
    Spread,
    Table,
    Work,
    best_of,
    describe_machine,
    ratios,
    seconds_of,
    take_turns,
)
from heedful.data.text.batching import Batch, SourceBatch
from heedful.experiment.trainer_setup import build_model, build_trainer
from heedful.recipes import Recipe, load_recipe
from heedful.tokenization.vocabulary import BOS, EOS, PAD

SIZE, NUM_PAIRS, NUM_THREADS = 256, 40, 2
LENGTHS = {"20 tokens": (20, 20), "15 to 25 tokens": (15, 25)}
SIZES = Sizes(SIZE, 3, 4, 4 * SIZE, VOCABULARY)
TRANSFORMER_DROPOUT, RECURRENT_DROPOUT = 0.1, 0.3
OVERRIDES = {
    "transformer": [
        f"model.{side}.{setting}"
        for side in ("encoder", "decoder")
        for setting in ("num_layers=3", "norm_order=post", f"dropout={TRANSFORMER_DROPOUT}")
    ],
    "recurrent": [
        *BAHDANAU,
        *("model.encoder.embedding_size=256", "model.encoder.hidden_size=256"),
        *("model.decoder.embedding_size=256", "model.decoder.hidden_size=256"),
        "model.decoder.attention={score: {type: additive, hidden_size: 256}}",
        *(f"model.{side}.dropout={RECURRENT_DROPOUT}" for side in ("encoder", "decoder")),
    ],
}
RECIPES = {"transformer": "transformer-2017-small", "recurrent": "bahdanau-2015-multi30k"}
TARGET_RATIO = 1.2
ROUNDS, QUICK_ROUNDS, STEPS_PER_ROUND = 9, 3, 3


def random_batch(shortest: int, longest: int) -> Batch:
    """Return pairs whose lengths with EOS are evenly distributed on both sides."""
    lengths = torch.randint(shortest, longest + 1, (2, NUM_PAIRS))
    lengths[:, 0] = longest
    tokens = torch.randint(FIRST_TOKEN, VOCABULARY, (2, NUM_PAIRS, longest))
    positions = torch.arange(longest)
    tokens.masked_fill_(positions >= lengths.unsqueeze(-1), PAD)
    tokens.masked_fill_(positions == lengths.unsqueeze(-1) - 1, EOS)
    sources, targets = tokens
    inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], dim=1)
    return Batch(SourceBatch(sources, lengths[0]), inputs, targets)


def recipe_of(kind: str) -> Recipe:
    """Return the recipe of a model."""
    training = ["training.max_grad_norm=1", "training.label_smoothing=0.1"]
    return load_recipe(RECIPES[kind], [*OVERRIDES[kind], *training])


def build_ours(kind: str, batch: Batch) -> tuple[nn.Module, Work]:
    """Return heedful's model and its training step."""
    recipe, device = recipe_of(kind), torch.device("cpu")
    model = build_model(recipe, vocab_sizes(), device=device)
    trainer = build_trainer(recipe, model, lambda step: 1e-4, device=device)
    trainer.model.train()
    return trainer.model, partial(trainer.train_step, [batch])


def build_reference(build: Callable[[], nn.Module], batch: Batch) -> tuple[nn.Module, Work]:
    """Return a model of another system and its training step."""
    model = build().train()
    return model, plain_step(model, batch, "fp32", "cpu")


def references(kind: str, *, has_padding: bool) -> dict[str, Callable[[], nn.Module]]:
    """Return functions that build the models of other systems, whose output is the loss."""
    builds: dict[str, Callable[[], nn.Module]]
    if kind == "recurrent":
        builds = {
            "nn.LSTM, nn.LSTMCell in a loop": lambda: PlainBahdanau(
                SIZE, memory_size=SIZE, dropout=RECURRENT_DROPOUT, has_padding=has_padding
            )
        }
    else:
        builds = {"nn.Transformer": lambda: PlainTransformer(SIZES, has_padding=has_padding)}
        if has_transformers():
            builds["Hugging Face Marian, SDPA"] = lambda: MarianLoss(
                build_marian(SIZES, inner_dropout=TRANSFORMER_DROPOUT), has_padding=has_padding
            )
    return builds


def bench(kind: str, rounds: int, *, uses_cpu_seconds: bool) -> None:
    """Print a table for one of the two models."""
    columns = "target tokens/s", "heedful is faster by", "at least"
    table = Table(kind, "system", "parameters", *columns)
    for title, (shortest, longest) in LENGTHS.items():
        batch = random_batch(shortest, longest)
        builds = references(kind, has_padding=shortest < longest)
        systems = {"heedful": build_ours(kind, batch)}
        systems |= {name: build_reference(build, batch) for name, build in builds.items()}
        clock = cpu_seconds_of if uses_cpu_seconds else seconds_of
        measures = {name: clock(partial(_repeat, work)) for name, (_, work) in systems.items()}
        times = take_turns(measures, rounds=rounds)
        best = best_of(times, list(times)[1:]) if len(times) > 1 else ""
        for name, taken in times.items():
            num_parameters = sum(parameter.numel() for parameter in systems[name][0].parameters())
            num_tokens = batch.num_targets * STEPS_PER_ROUND
            speed = Spread.of([num_tokens / seconds for seconds in taken])
            table.add(
                title,
                name,
                f"{num_parameters:,}",
                speed.format(),
                "" if name == "heedful" else ratios(times, "heedful", name).format(".2f"),
                f"{TARGET_RATIO:g}" if name == best else "",
            )


def cpu_seconds_of(work: Work) -> Callable[[], float]:
    """Return a function that runs the work and returns the processor time it took."""

    def measure() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return measure


def _repeat(work: Work) -> None:
    for _ in range(STEPS_PER_ROUND):
        work()


def profile(kind: str) -> None:
    """Print the operators of a step of heedful that take longest, and its milliseconds."""
    batch = random_batch(*LENGTHS["20 tokens"])
    _, work = build_ours(kind, batch)
    times = [seconds_of(work)() for _ in range(8)]
    with torch.profiler.profile() as profiler:
        for _ in range(STEPS_PER_ROUND):
            work()
    print(f"\n{kind}: {1e3 * statistics.median(times):.0f} ms a step")
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=30))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is timed")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--only", choices=list(RECIPES), help="one of the two models")
    parser.add_argument("--profile", action="store_true", help="operators of heedful's step")
    parser.add_argument("--cpu-seconds", action="store_true", help="processor time, one thread")
    arguments = parser.parse_args()
    torch.set_num_threads(1 if arguments.cpu_seconds else NUM_THREADS)
    torch.manual_seed(0)
    print(f"{describe_machine()}; fp32")
    rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds
    for kind in [arguments.only] if arguments.only else RECIPES:
        if arguments.profile:
            profile(kind)
        else:
            bench(kind, rounds, uses_cpu_seconds=arguments.cpu_seconds)


if __name__ == "__main__":
    main()
