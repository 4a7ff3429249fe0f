"""Gradient norms against distance, with and without attention.

Claim: backpropagated through a recurrence, gradients vanish with distance in a simple RNN, less in
a gated one, and not at all through attention. Measured: the gradient of a random projection of the
last state (or of the context of an attention over all states, queried with the last one) with
respect to each input, at initialization, against the number of steps back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import normalize

from experiments import LAB, heading, row, save
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cell_config import (
    CellConfigBase,
    GRUCellConfig,
    LSTMCellConfig,
    RNNCellConfig,
)
from heedful.layers.rnn_cells import TorchCell
from heedful.plotting.charts import LineSeries, render_line_chart
from heedful.shapes import Float

SIZE = 64  # of an input and of a state
NUM_SEQUENCES = 16  # per seed
TABLE_DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100)  # columns of the table
CHART_STEP = 5  # steps between the points of the chart

Initializer = Callable[[TorchCell, int], None]


class Subject(NamedTuple):
    """A cell, its initialization, and whether attention reads its states."""

    name: str
    cell: CellConfigBase
    initialize: Initializer
    attends: bool = False


def default_init(cell: TorchCell, steps: int) -> None:
    """Keep torch's default: uniform within 1 / sqrt(hidden_size)."""


def orthogonal(cell: TorchCell, steps: int) -> None:
    """Keras's default: U orthogonal, W Xavier uniform (Glorot & Bengio 2010), zero biases."""
    weight_ih, weight_hh, *biases = cell.weights
    nn.init.xavier_uniform_(weight_ih)
    nn.init.orthogonal_(weight_hh)
    for bias in biases:
        nn.init.zeros_(bias)


def forget_bias_one(cell: TorchCell, steps: int) -> None:
    """Forget bias of 1 (Jozefowicz et al. 2015), Keras's default."""
    set_gate(cell, 1, torch.ones(cell.hidden_size))


def chrono_init(cell: TorchCell, steps: int) -> None:
    """Chrono initialization: time constants uniform up to the length (Tallec & Ollivier 2018)."""
    times = torch.empty(cell.hidden_size).uniform_(1, max(2, steps)).log()
    set_gate(cell, 1, times)
    if isinstance(cell.layer, nn.LSTM):
        set_gate(cell, 0, -times)


def set_gate(cell: TorchCell, gate: int, bias: Float[Tensor, "D"]) -> None:
    """Set the bias of a gate: 1 is z of (r, z, n) in a GRU and f of (i, f, g, o) in an LSTM.

    torch has two biases per gate; the second is set to zero.
    """
    rows = slice(gate * cell.hidden_size, (gate + 1) * cell.hidden_size)
    with torch.no_grad():
        cell.weights[2][rows] = bias
        cell.weights[3][rows] = 0


CELLS: dict[str, CellConfigBase] = {
    "rnn": RNNCellConfig(),
    "gru": GRUCellConfig(),
    "lstm": LSTMCellConfig(),
}
CLAIM = [
    *(Subject(name, cell, default_init) for name, cell in CELLS.items()),
    *(Subject(f"attention over {name}", cell, default_init, True) for name, cell in CELLS.items()),
]
INITIALIZATIONS = [
    Subject("rnn", CELLS["rnn"], default_init),
    Subject("rnn, orthogonal", CELLS["rnn"], orthogonal),
    Subject("lstm", CELLS["lstm"], default_init),
    Subject("lstm, forget bias 1", CELLS["lstm"], forget_bias_one),
    Subject("lstm, chrono init", CELLS["lstm"], chrono_init),
    Subject("gru, chrono init", CELLS["gru"], chrono_init),
]


def measure(subject: Subject, *, steps: int, seeds: int) -> list[float]:
    """Return the gradient norm at each distance, relative to that of the cell's last input.

    Norms are averaged geometrically over sequences and seeds: a few large ones would dominate an
    arithmetic mean.
    """
    without_attention = subject._replace(attends=False)
    norms, unit = (
        torch.cat([_norms(variant, steps, seed) for seed in range(seeds)]).log().mean(dim=0).exp()
        for variant in (subject, without_attention)
    )
    return (norms / unit[0]).tolist()


def _norms(subject: Subject, steps: int, seed: int) -> Float[Tensor, "B S"]:
    """Return the norms of one seed, nearest input first."""
    torch.manual_seed(seed)
    cell = subject.cell.build(input_size=SIZE, hidden_size=SIZE)
    assert isinstance(cell, TorchCell)
    subject.initialize(cell, steps)
    attention = AttentionConfig().build(query_size=SIZE, memory_size=SIZE).double()
    # float64: the gradients of a simple RNN soon underflow in float32.
    inputs, directions = (torch.randn(NUM_SEQUENCES, n, SIZE).double() for n in (steps + 1, 1))
    inputs.requires_grad_()
    lengths = torch.full((NUM_SEQUENCES,), steps + 1)
    states = RecurrentLayer(forward_cell=cell.double())(inputs, lengths)
    output = states[:, -1:]  # (B, 1, D)
    if subject.attends:
        memory = attention.build_memory(states, padding_mask(lengths, steps + 1))
        output = attention(output, memory).context
    (gradients,) = torch.autograd.grad((output * normalize(directions, dim=-1)).sum(), inputs)
    return gradients.norm(dim=-1).flip(1)


def kept_per_step(norms: list[float]) -> float:
    """Return the factor by which one step shrinks the gradient, in the middle of the sequence."""
    first, last = len(norms) // 10, len(norms) // 2
    return (norms[last] / norms[first]) ** (1 / (last - first))


def print_table(subjects: list[Subject], *, steps: int, seeds: int) -> list[LineSeries]:
    """Measure and print a table; return the lines of its chart."""
    distances = [distance for distance in TABLE_DISTANCES if distance <= steps]
    typer.echo("\n" + heading(["steps back", *map(str, distances), "factor per step"]))
    lines = []
    for subject in subjects:
        norms = measure(subject, steps=steps, seeds=seeds)
        numbers = [f"{norms[distance]:.1e}" for distance in distances]
        typer.echo(row([subject.name, *numbers, f"{kept_per_step(norms):.2f}"]))
        points = [(distance, norms[distance]) for distance in range(0, steps + 1, CHART_STEP)]
        lines.append(LineSeries(subject.name, points, dashed=subject.attends))
    return lines


def draw(lines: list[LineSeries], title: str) -> str:
    """Draw gradient norms against distance."""
    return render_line_chart(
        lines,
        title=title,
        x_label="steps from the input to the last state",
        y_label="gradient norm, relative to the last input of the cell",
        log_axes=(False, True),
    )


def main(
    output_dir: Annotated[Path, typer.Option(help="write charts to images/ in this folder")] = LAB,
    steps: Annotated[int, typer.Option(help="number of steps back", min=10, max=500)] = 100,
    seeds: Annotated[int, typer.Option(help="number of seeds", min=1)] = 5,
) -> None:
    """Measure gradient norms against distance, with and without attention.

    Example: python -m experiments.gradients --steps 50
    """
    torch.set_num_threads(1)
    typer.echo(
        f"torch {torch.__version__}, {seeds} seeds of {NUM_SEQUENCES} sequences, hidden size {SIZE}"
    )
    claim = draw(print_table(CLAIM, steps=steps, seeds=seeds), "Gradients against distance")
    initializations = draw(
        print_table(INITIALIZATIONS, steps=steps, seeds=seeds), "Other initializations"
    )
    typer.echo()
    for name, image in {"gradients": claim, "gradients-initialization": initializations}.items():
        typer.echo(f"wrote {save(image, output_dir, name)}")


if __name__ == "__main__":
    typer.run(main)
