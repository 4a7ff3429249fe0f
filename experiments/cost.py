"""Cost of attention against sequence length.

Claim: without attention, encoding l1 and decoding l2 tokens costs O(l1 + l2); with attention it
costs O(l1 l2). Measured: a small encoder-decoder runs with teacher forcing, once with attention and
once with the same components but a constant context. FLOPs are those of matrix products, as torch
counts them; time is the CPU time of one thread. Forward passes only: gradients would triple every
number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from torch.utils.flop_counter import FlopCounterMode

from experiments import LAB, heading, row, save
from heedful.attention.additive_scores import AdditiveScoreConfig
from heedful.attention.config import AttentionConfig, ScoreConfig
from heedful.attention.scores import BilinearScoreConfig
from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.recurrent.wiring import ConstantContextWiringConfig
from heedful.plotting.charts import LineSeries, render_line_chart

SIZE = 64  # of embeddings and states
VOCAB_SIZE = 100
BATCH_SIZE = 8
REPEATS = 9
MIN_LENGTH, MAX_LENGTH = 10, 1280

# All of its work is matrix products. The tanh of an additive score would not be counted.
COUNTED_SCORE = BilinearScoreConfig()


class AttentionFlops(NamedTuple):
    """FLOPs by purpose."""

    base: int  # encoder and decoder without attention
    keys: int  # key projection, once per source token
    pairs: int  # scores and contexts, per pair of target and source token

    @property
    def total(self) -> int:
        """FLOPs of the model with attention."""
        return sum(self)


def build_model(score: ScoreConfig | None) -> EncoderDecoderModel:
    """Build a small encoder-decoder with this attention score, or without attention."""
    decoder = RecurrentDecoderConfig(embedding_size=SIZE, hidden_size=SIZE)
    if score is None:
        decoder = decoder.model_copy(update={"wiring": ConstantContextWiringConfig()})
    else:
        decoder = decoder.model_copy(update={"attention": AttentionConfig(score=score)})
    encoder = RecurrentEncoderConfig(embedding_size=SIZE, hidden_size=SIZE)
    config = EncoderDecoderConfig(encoder=encoder, decoder=decoder)
    return config.build(source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE).eval()


def random_batch(source_length: int, target_length: int) -> Batch:
    """Return random tokens without padding."""
    source, target = (
        torch.randint(VOCAB_SIZE // 2, VOCAB_SIZE, (BATCH_SIZE, length))
        for length in (source_length, target_length)
    )
    return Batch(SourceBatch(source, torch.full((BATCH_SIZE,), source_length)), target, target)


def teacher_force(model: EncoderDecoderModel, batch: Batch) -> None:
    """Run encoder and decoder on known targets."""
    model.decoder(batch.decoder_inputs, model.encoder(*batch.sources))


def count_attention_flops(source_length: int, target_length: int) -> AttentionFlops:
    """Count the FLOPs for sequences of these lengths."""
    batch = random_batch(source_length, target_length)
    base, with_attention = (
        _flops_by_module(build_model(score), batch) for score in (None, COUNTED_SCORE)
    )
    attention = "RecurrentDecoder.wiring.attention"
    keys = with_attention[f"{attention}.score.projection"]
    flops = AttentionFlops(base["Global"], keys, with_attention[attention])
    assert flops.total == with_attention["Global"], f"{flops} != {with_attention['Global']}"
    return flops


def _flops_by_module(model: EncoderDecoderModel, batch: Batch) -> dict[str, int]:
    """Return the FLOPs of each module by name, and of all as 'Global'."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        teacher_force(model, batch)
    return {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}


def milliseconds(
    models: dict[str, EncoderDecoderModel], lengths: Sequence[int], *, repeats: int
) -> list[dict[str, float]]:
    """Return the minimum CPU time of each model for each length.

    The minimum over rounds, with every length in every round: other processes can only add time.
    """
    batches = [random_batch(length, length) for length in lengths]
    minimum = [dict.fromkeys(models, math.inf) for _ in lengths]
    for repeat in range(repeats):
        typer.echo(f"timing, round {repeat + 1} of {repeats}", err=True)
        for batch, taken in zip(batches, minimum, strict=True):
            for name, model in models.items():
                start = time.process_time()
                with torch.no_grad():
                    teacher_force(model, batch)
                taken[name] = min(taken[name], 1000 * (time.process_time() - start))
    return minimum


def timed_models() -> dict[str, EncoderDecoderModel]:
    """Return the models to time."""
    return {
        "without attention": build_model(None),
        "bilinear attention": build_model(BilinearScoreConfig()),
        "additive attention": build_model(AdditiveScoreConfig(hidden_size=SIZE)),
    }


def growth_row(columns: Iterable[Sequence[float]]) -> str:
    """Return the last row of a table: the growth over the last doubling of the length."""
    return row(["last doubling", *(f"x {column[-1] / column[-2]:.2f}" for column in columns)])


def print_flops(lengths: Sequence[int]) -> list[LineSeries]:
    """Count and print FLOPs for equal lengths; return the lines of the chart."""
    names = ["without attention", "key projection", "scores and contexts", "total, with attention"]
    typer.echo("\nMFLOPs, l1 = l2 = l:\n")
    typer.echo(heading(["l", *names]))
    counts = []
    for length in lengths:
        flops = count_attention_flops(length, length)
        counts.append((*flops, flops.total))
        typer.echo(row([str(length), *(f"{count / 1e6:.3f}" for count in counts[-1])]))
    columns = list(zip(*counts, strict=True))
    typer.echo(growth_row(columns))
    return [
        LineSeries(name, list(zip(lengths, column, strict=True)), dashed=name.startswith("total"))
        for name, column in zip(names, columns, strict=True)
    ]


def print_crossed_flops(lengths: Sequence[int]) -> None:
    """Count and print FLOPs for all combinations of source and target length."""
    typer.echo("\nMFLOPs, unequal lengths:\n")
    typer.echo(heading(["l1, l2", "without attention", "scores and contexts"]))
    for source_length in lengths:
        for target_length in lengths:
            flops = count_attention_flops(source_length, target_length)
            numbers = [f"{count / 1e6:.3f}" for count in (flops.base, flops.pairs)]
            typer.echo(row([f"{source_length}, {target_length}", *numbers]))


def print_times(lengths: Sequence[int], *, repeats: int) -> list[LineSeries]:
    """Time and print for equal lengths; return the lines of the chart."""
    models = timed_models()
    times = milliseconds(models, lengths, repeats=repeats)
    typer.echo("\nMilliseconds, l1 = l2 = l:\n")
    typer.echo(heading(["l", *models]))
    for length, taken in zip(lengths, times, strict=True):
        typer.echo(row([str(length), *(f"{value:.1f}" for value in taken.values())]))
    columns = {name: [taken[name] for taken in times] for name in models}
    typer.echo(growth_row(columns.values()))
    return [
        LineSeries(name, list(zip(lengths, column, strict=True)))
        for name, column in columns.items()
    ]


def draw(lines: Sequence[LineSeries], title: str, y_label: str) -> str:
    """Draw cost against length."""
    return render_line_chart(
        lines,
        title=title,
        x_label="source and target length",
        y_label=y_label,
        log_axes=(True, True),
    )


def main(
    output_dir: Annotated[Path, typer.Option(help="write charts to images/ in this folder")] = LAB,
    max_length: Annotated[
        int, typer.Option(help="largest sequence length", min=2 * MIN_LENGTH)
    ] = MAX_LENGTH,
    repeats: Annotated[int, typer.Option(help="rounds of timing", min=1)] = REPEATS,
) -> None:
    """Count FLOPs and time of attention against sequence length.

    Example: python -m experiments.cost --max-length 320
    """
    torch.set_num_threads(1)
    typer.echo(
        f"torch {torch.__version__}, 1 thread, batch {BATCH_SIZE}, size {SIZE}, best of {repeats}"
    )
    lengths = [MIN_LENGTH]
    while 2 * lengths[-1] <= max_length:
        lengths.append(2 * lengths[-1])
    flops = draw(print_flops(lengths), "FLOPs against length", "FLOPs")
    print_crossed_flops([lengths[-1] // 4, lengths[-1]])
    times = draw(print_times(lengths, repeats=repeats), "Time against length", "milliseconds")
    typer.echo()
    for name, image in {"cost-operations": flops, "cost-time": times}.items():
        typer.echo(f"wrote {save(image, output_dir, name)}")


if __name__ == "__main__":
    typer.run(main)
