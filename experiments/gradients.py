"""Do gradients vanish with distance, and is attention a way round that?

The claim: going back through a recurrence, gradients vanish with distance in a simple cell, less in
a gated one, and not at all through attention. Measured: a sequence of random inputs is read, and a
random direction of the last state (or of the context that this state gets by asking all states) is
differentiated by each input. The norm of that gradient, against how many steps back the input lies,
tells how loudly a cause that far away can be heard when learning begins.
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
from heedful.attention import padding_mask
from heedful.attention.config import AttentionConfig
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cells import (
    CellConfigBase,
    GRUCellConfig,
    LSTMCellConfig,
    RNNCellConfig,
    TorchCell,
)
from heedful.plotting.charts import LineSeries, render_line_chart
from heedful.shapes import Float

SIZE = 64  # of an input and of a state
SEQUENCES = 16  # read for each seed
TOLD = (0, 1, 2, 5, 10, 20, 50, 100)  # the distances in the table
APART = 5  # steps between the points of the chart

Start = Callable[[TorchCell, int], None]


class Subject(NamedTuple):
    """What is differentiated: a cell, how its parameters begin, and who looks at its states."""

    name: str
    cell: CellConfigBase
    start: Start
    attends: bool = False


# --- how a cell begins ---------------------------------------------------------------------


def as_built(cell: TorchCell, steps: int) -> None:
    """Leave it as torch makes it: all parameters uniform within 1 / sqrt(size) of zero."""


def orthogonal(cell: TorchCell, steps: int) -> None:
    """Begin as Keras does: U orthogonal, W uniform (Glorot & Bengio 2010), no biases."""
    of_input, of_state, *biases = cell.weights
    nn.init.xavier_uniform_(of_input)
    nn.init.orthogonal_(of_state)
    for bias in biases:
        nn.init.zeros_(bias)


def forgetting_little(cell: TorchCell, steps: int) -> None:
    """Begin with a forget bias of 1 (Jozefowicz et al. 2015), as Keras does."""
    set_gate(cell, 1, torch.ones(cell.hidden_size))


def gates_open(cell: TorchCell, steps: int) -> None:
    """Let each unit keep for a time drawn up to the whole sequence (Tallec & Ollivier 2018)."""
    times = torch.empty(cell.hidden_size).uniform_(1, max(2, steps)).log()
    set_gate(cell, 1, times)
    if isinstance(cell.layer, nn.LSTM):
        set_gate(cell, 0, -times)


def set_gate(cell: TorchCell, gate: int, bias: Float[Tensor, "D"]) -> None:
    """Set the bias of a gate, of which torch has two, by its place among the gates.

    Second is what is kept: z of r, z, n in a GRU and f of i, f, g, o in an LSTM.
    """
    here = slice(gate * cell.hidden_size, (gate + 1) * cell.hidden_size)
    with torch.no_grad():
        cell.weights[2][here] = bias
        cell.weights[3][here] = 0


CELLS: dict[str, CellConfigBase] = {
    "rnn": RNNCellConfig(),
    "gru": GRUCellConfig(),
    "lstm": LSTMCellConfig(),
}
CLAIM = [
    *(Subject(name, cell, as_built) for name, cell in CELLS.items()),
    *(Subject(f"attention over {name}", cell, as_built, True) for name, cell in CELLS.items()),
]
BEGINNINGS = [
    Subject("rnn", CELLS["rnn"], as_built),
    Subject("rnn, orthogonal", CELLS["rnn"], orthogonal),
    Subject("lstm", CELLS["lstm"], as_built),
    Subject("lstm, forget bias 1", CELLS["lstm"], forgetting_little),
    Subject("lstm, gates open", CELLS["lstm"], gates_open),
    Subject("gru, gates open", CELLS["gru"], gates_open),
]


# --- what is measured ----------------------------------------------------------------------


def measure(subject: Subject, *, steps: int, seeds: int) -> list[float]:
    """The norm of the gradient at each distance up to `steps`, the cell's own at 0 being 1.

    The mean over sequences and seeds is that of logarithms: an ordinary one would tell of the few
    loudest alone.
    """
    own = subject._replace(attends=False)
    norms, unit = (
        torch.cat([_norms(each, steps, seed) for seed in range(seeds)]).log().mean(dim=0).exp()
        for each in (subject, own)
    )
    return (norms / unit[0]).tolist()


def _norms(subject: Subject, steps: int, seed: int) -> Float[Tensor, "B S"]:
    """The norms of one seed, nearest input first."""
    torch.manual_seed(seed)
    cell = subject.cell.build(input_size=SIZE, hidden_size=SIZE)
    assert isinstance(cell, TorchCell)
    subject.start(cell, steps)
    attention = AttentionConfig().build(query_size=SIZE, memory_size=SIZE).double()
    # In double precision: single ends at 1e-38, where a simple cell soon is.
    inputs, directions = (torch.randn(SEQUENCES, n, SIZE).double() for n in (steps + 1, 1))
    inputs.requires_grad_()
    lengths = torch.full((SEQUENCES,), steps + 1)
    states = RecurrentLayer(forward_cell=cell.double())(inputs, lengths)
    seen = states[:, -1:]  # (B, 1, D)
    if subject.attends:
        memory = attention.build_memory(states, padding_mask(lengths, steps + 1))
        seen = attention(seen, memory).context
    (slopes,) = torch.autograd.grad((seen * normalize(directions, dim=-1)).sum(), inputs)
    return slopes.norm(dim=-1).flip(1)


def kept_per_step(norms: list[float]) -> float:
    """What share of the gradient one step leaves, in the middle of the sequence."""
    first, last = len(norms) // 10, len(norms) // 2
    return (norms[last] / norms[first]) ** (1 / (last - first))


# --- what is told --------------------------------------------------------------------------


def tell(subjects: list[Subject], *, steps: int, seeds: int) -> list[LineSeries]:
    """Measure and print a table, a row at a time; give the lines of its chart."""
    told = [distance for distance in TOLD if distance <= steps]
    typer.echo("\n" + heading(["steps back", *map(str, told), "kept a step"]))
    lines = []
    for subject in subjects:
        norms = measure(subject, steps=steps, seeds=seeds)
        numbers = [f"{norms[distance]:.1e}" for distance in told]
        typer.echo(row([subject.name, *numbers, f"{kept_per_step(norms):.2f}"]))
        points = [(place, norms[place]) for place in range(0, steps + 1, APART)]
        lines.append(LineSeries(subject.name, points, dashed=subject.attends))
    return lines


def draw(lines: list[LineSeries], title: str) -> str:
    """Draw norms against distance."""
    return render_line_chart(
        lines,
        title=title,
        x_label="steps from the input to the last state",
        y_label="norm of the gradient; that of the cell's own last input is 1",
        log_axes=(False, True),
    )


def main(
    output_projection: Annotated[
        Path, typer.Option(help="the folder whose images/ the charts go to")
    ] = LAB,
    steps: Annotated[int, typer.Option(help="how far back to go", min=10, max=500)] = 100,
    seeds: Annotated[int, typer.Option(help="how many to average over", min=1)] = 5,
) -> None:
    """Measure how gradients fade with distance, with and without attention.

    Example: python -m experiments.gradients --steps 50
    """
    torch.set_num_threads(1)
    typer.echo(f"torch {torch.__version__}, {seeds} seeds of {SEQUENCES} sequences, width {SIZE}")
    claim = draw(tell(CLAIM, steps=steps, seeds=seeds), "Gradients against distance")
    beginnings = draw(tell(BEGINNINGS, steps=steps, seeds=seeds), "The same cells, begun otherwise")
    typer.echo()
    for name, picture in {"gradients": claim, "gradients-beginnings": beginnings}.items():
        typer.echo(f"wrote {save(picture, output_projection, name)}")


if __name__ == "__main__":
    typer.run(main)
