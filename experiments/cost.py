"""What does attention cost, as sequences grow?

The claim: without attention the cost of reading l1 and writing l2 tokens grows as l1 + l2, with it
as l1 l2. Measured: one small encoder and decoder reads and writes known tokens, once with attention
and once with the same parts but the summary of the source in place of every context. Counted are
the additions and multiplications of matrix products, as torch counts them; timed is the processor
time of one thread. Nothing is learned: gradients would about treble every number.
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
from heedful.attention.composite_scores import ScoreConfig
from heedful.attention.config import AttentionConfig
from heedful.attention.dot_product_scores import BilinearScoreConfig
from heedful.data.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.models.recurrent.decoder import RecurrentDecoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.recurrent.wiring import ConstantContextWiringConfig
from heedful.plotting.charts import LineSeries, render_line_chart

SIZE = 64  # of embeddings and states
VOCABULARY = 100
BATCH = 8
REPEATS = 9
NORM_EPSILON, LONGEST = 10, 1280

# Its every product is counted. The tanh of an additive score, done for each pair and each of its
# units, is no matrix product and would be left out.
COUNTED = BilinearScoreConfig()


class Operations(NamedTuple):
    """Additions and multiplications, by what they are done for."""

    without: int  # reading and writing, the same without attention
    keys: int  # making keys ready, once for each source token
    pairs: int  # scores and contexts, for each target token and source token

    @property
    def whole(self) -> int:
        """All that the model with attention does."""
        return sum(self)


def transducer(score: ScoreConfig | None) -> EncoderDecoderModel:
    """A small encoder and decoder that attends by this score, or not at all.

    Both have the same parts of the same widths; only what is read beside each token is another.
    """
    decoder = RecurrentDecoderConfig(embedding_size=SIZE, hidden_size=SIZE)
    if score is None:
        decoder = decoder.model_copy(update={"wiring": ConstantContextWiringConfig()})
    else:
        decoder = decoder.model_copy(update={"attention": AttentionConfig(score=score)})
    encoder = RecurrentEncoderConfig(embedding_size=SIZE, hidden_size=SIZE)
    config = EncoderDecoderConfig(encoder=encoder, decoder=decoder)
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).eval()


def batch_of(source_length: int, target_length: int) -> Batch:
    """Known tokens, none of them special, without padding."""
    source, target = (
        torch.randint(VOCABULARY // 2, VOCABULARY, (BATCH, length))
        for length in (source_length, target_length)
    )
    return Batch(SourceBatch(source, torch.full((BATCH,), source_length)), target, target)


def write(model: EncoderDecoderModel, batch: Batch) -> None:
    """Read the sources and write the known targets, as in learning, but for the loss."""
    model.decoder(batch.decoder_inputs, model.encoder(*batch.sources))


# --- what is measured ----------------------------------------------------------------------


def operations(source_length: int, target_length: int) -> Operations:
    """Count the operations for sequences of these lengths."""
    batch = batch_of(source_length, target_length)
    without, attended = (_tokens_per_expert(transducer(score), batch) for score in (None, COUNTED))
    attention = "RecurrentDecoder.wiring.attention"
    keys = attended[f"{attention}.score.projection"]
    counted = Operations(without["Global"], keys, attended[attention])
    assert counted.whole == attended["Global"], f"{counted} is not {attended['Global']} in all"
    return counted


def _tokens_per_expert(model: EncoderDecoderModel, batch: Batch) -> dict[str, int]:
    """The operations of each module by its name, and of all as 'Global'."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        write(model, batch)
    return {name: sum(of.values()) for name, of in counter.get_flop_counts().items()}


def milliseconds(
    models: dict[str, EncoderDecoderModel], lengths: Sequence[int], *, repeats: int
) -> list[dict[str, float]]:
    """The least processor time of each model, for each length.

    Neither the clock on the wall nor the median, and every length in every round: others may be
    using the machine, for a while, and can only add to what is measured.
    """
    batches = [batch_of(length, length) for length in lengths]
    least = [dict.fromkeys(models, math.inf) for _ in lengths]
    for repeat in range(repeats):
        typer.echo(f"timing, round {repeat + 1} of {repeats}", err=True)
        for batch, taken in zip(batches, least, strict=True):
            for name, model in models.items():
                began = time.process_time()
                with torch.no_grad():
                    write(model, batch)
                taken[name] = min(taken[name], 1000 * (time.process_time() - began))
    return least


def timed_models() -> dict[str, EncoderDecoderModel]:
    """The models whose time is told."""
    return {
        "without attention": transducer(None),
        "bilinear attention": transducer(BilinearScoreConfig()),
        "additive attention": transducer(AdditiveScoreConfig(hidden_size=SIZE)),
    }


# --- what is told --------------------------------------------------------------------------


def doubled(columns: Iterable[Sequence[float]]) -> str:
    """The last row of a table: what the last doubling of the length multiplied numbers by."""
    return row(["last doubling", *(f"x {column[-1] / column[-2]:.2f}" for column in columns)])


def tell_operations(lengths: Sequence[int]) -> list[LineSeries]:
    """Count and print, for both sides of one length; give the lines of the chart."""
    names = ["without attention", "keys made ready", "scores and contexts", "whole, with attention"]
    typer.echo("\nOperations, in millions, l1 = l2 = l:\n")
    typer.echo(heading(["l", *names]))
    counts = []
    for length in lengths:
        counted = operations(length, length)
        counts.append((*counted, counted.whole))
        typer.echo(row([str(length), *(f"{count / 1e6:.3f}" for count in counts[-1])]))
    columns = list(zip(*counts, strict=True))
    typer.echo(doubled(columns))
    return [
        LineSeries(name, list(zip(lengths, column, strict=True)), dashed=name.startswith("whole"))
        for name, column in zip(names, columns, strict=True)
    ]


def tell_crossed(lengths: Sequence[int]) -> None:
    """Count and print, for each length of one side with each of the other: sum or product?"""
    typer.echo("\nOperations, in millions, each side by itself:\n")
    typer.echo(heading(["l1, l2", "without attention", "scores and contexts"]))
    for source_length in lengths:
        for target_length in lengths:
            counted = operations(source_length, target_length)
            numbers = [f"{count / 1e6:.3f}" for count in (counted.without, counted.pairs)]
            typer.echo(row([f"{source_length}, {target_length}", *numbers]))


def tell_times(lengths: Sequence[int], *, repeats: int) -> list[LineSeries]:
    """Time and print, for both sides of one length; give the lines of the chart."""
    models = timed_models()
    times = milliseconds(models, lengths, repeats=repeats)
    typer.echo("\nMilliseconds, l1 = l2 = l:\n")
    typer.echo(heading(["l", *models]))
    for length, taken in zip(lengths, times, strict=True):
        typer.echo(row([str(length), *(f"{each:.1f}" for each in taken.values())]))
    columns = {name: [taken[name] for taken in times] for name in models}
    typer.echo(doubled(columns.values()))
    return [
        LineSeries(name, list(zip(lengths, each, strict=True))) for name, each in columns.items()
    ]


def draw(lines: Sequence[LineSeries], title: str, y_label: str) -> str:
    """Draw costs against length."""
    return render_line_chart(
        lines,
        title=title,
        x_label="tokens read, and as many written",
        y_label=y_label,
        log_axes=(True, True),
    )


def main(
    output_projection: Annotated[
        Path, typer.Option(help="the folder whose images/ the charts go to")
    ] = LAB,
    longest: Annotated[
        int, typer.Option(help="stop doubling the length here", min=2 * NORM_EPSILON)
    ] = LONGEST,
    repeats: Annotated[int, typer.Option(help="how often to time each model", min=1)] = REPEATS,
) -> None:
    """Count and time what attention costs as sequences grow.

    Example: python -m experiments.cost --longest 320
    """
    torch.set_num_threads(1)
    typer.echo(
        f"torch {torch.__version__}, one thread, batch {BATCH}, width {SIZE}, best of {repeats}"
    )
    lengths = [NORM_EPSILON]
    while 2 * lengths[-1] <= longest:
        lengths.append(2 * lengths[-1])
    counted = draw(tell_operations(lengths), "Operations against length", "operations")
    tell_crossed([lengths[-1] // 4, lengths[-1]])
    timed = draw(tell_times(lengths, repeats=repeats), "Time against length", "milliseconds")
    typer.echo()
    for name, picture in {"cost-operations": counted, "cost-time": timed}.items():
        typer.echo(f"wrote {save(picture, output_projection, name)}")


if __name__ == "__main__":
    typer.run(main)
