"""How close RNNs come to the exact posteriors of a hidden Markov model.

Claim: an RNN that is trained to predict the hidden states of an HMM from its output computes, read
forward, the filtered posterior p(q_t | o_1 .. o_t) of the forward algorithm, and, read in both
directions, the smoothed posterior p(q_t | o_1 .. o_T) of forward-backward. Measured: the mean KL
divergence from the exact posterior to the prediction, against hidden size and number of training
sequences.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from experiments import LAB, heading, row, save
from heedful.layers.rnn_cell_config import LSTMCellConfig
from heedful.markov import CategoricalEmission, HiddenMarkovModel, HMMSample
from heedful.models.recurrent.encoder import (
    BidirectionalConfig,
    DirectionConfig,
    ForwardConfig,
    RecurrentEncoderConfig,
)
from heedful.plotting.charts import LineSeries, render_line_chart
from heedful.shapes import Float, Int

NUM_STATES, NUM_SYMBOLS = 4, 6
LENGTH = 20
BATCH_SIZE = 64
LEARNING_RATE = 0.02  # peak; decays linearly to zero
VALIDATE_EVERY = 50  # steps
NUM_HELD_OUT = 500  # sequences for validation, and as many for the test
HIDDEN_SIZES = (2, 4, 8, 16, 32)
DATA_SIZES = (100, 300, 1000, 3000, 10_000, 30_000)
DIRECTIONS: dict[str, DirectionConfig] = {
    "forward": ForwardConfig(),
    "bidirectional": BidirectionalConfig(),
}


class Divergences(NamedTuple):
    """Mean KL divergences, in nats per position, from exact posteriors to predictions."""

    filtered: float
    smoothed: float


class StateTagger(nn.Module):
    """p(q_t) = softmax(W h_t + b), with the states h_t of a recurrent encoder."""

    def __init__(self, direction: str, hidden_size: int) -> None:
        super().__init__()
        config = RecurrentEncoderConfig(
            cell=LSTMCellConfig(),
            embedding_size=NUM_SYMBOLS,
            hidden_size=hidden_size,
            direction=DIRECTIONS[direction],
        )
        self.encoder = config.build(vocab_size=NUM_SYMBOLS + 1)  # PAD is 0
        self.output_projection = nn.Linear(hidden_size, NUM_STATES)

    def forward(self, observations: Int[Tensor, "B T"]) -> Float[Tensor, "B T N"]:
        """Return log-probabilities of the states."""
        lengths = torch.full((len(observations),), observations.size(1))
        states = self.encoder(observations + 1, lengths).states
        return self.output_projection(states).log_softmax(dim=-1)


def build_hmm() -> HiddenMarkovModel:
    """Build a model whose states last some steps and emit overlapping symbols.

    A state keeps with 0.8 and else goes on to the next one; it emits one of three neighboring
    symbols, so that a symbol alone leaves two states, and what follows often decides.
    """
    stay, move = 0.8, 0.2
    transitions = stay * torch.eye(NUM_STATES) + move * torch.eye(NUM_STATES).roll(1, dims=1)
    emissions = torch.full((NUM_STATES, NUM_SYMBOLS), 0.02)
    for state in range(NUM_STATES):
        emissions[state, state : state + 3] = torch.tensor([0.3, 0.4, 0.3])
    return HiddenMarkovModel(torch.ones(NUM_STATES), transitions, CategoricalEmission(emissions))


@cache
def train(
    direction: str, *, hidden_size: int, num_sequences: int, steps: int, seed: int
) -> StateTagger:
    """Train a tagger on sequences of the HMM; return it as of its best validation loss.

    Cached: both tables have the largest model with the most data.
    """
    hmm, generator = build_hmm(), torch.Generator().manual_seed(1000 + seed)
    data = hmm.sample(num_sequences, LENGTH, generator)
    held_out = hmm.sample(NUM_HELD_OUT, LENGTH, generator)
    torch.manual_seed(seed)
    model = StateTagger(direction, hidden_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, total_iters=steps)
    best, best_loss = copy.deepcopy(model.state_dict()), float("inf")
    for step in range(1, steps + 1):
        rows = torch.randint(num_sequences, (BATCH_SIZE,), generator=generator)
        loss = cross_entropy(model, HMMSample(data.states[rows], data.observations[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % VALIDATE_EVERY == 0 or step == steps:
            with torch.no_grad():
                validation_loss = cross_entropy(model, held_out).item()
            if validation_loss < best_loss:
                best, best_loss = copy.deepcopy(model.state_dict()), validation_loss
    model.load_state_dict(best)
    return model.eval()


def cross_entropy(model: StateTagger, sample: HMMSample) -> Float[Tensor, ""]:
    """Return the mean of -log p(q_t)."""
    return nll_loss(model(sample.observations).flatten(0, 1), sample.states.flatten())


class ExactPosteriors:
    """Sequences that no model was trained on, with their exact posteriors."""

    def __init__(self, num_sequences: int = NUM_HELD_OUT) -> None:
        hmm = build_hmm()
        sample = hmm.sample(num_sequences, LENGTH, torch.Generator().manual_seed(0))
        self.observations = sample.observations
        with torch.no_grad():
            self.filtered = hmm.filtered_posteriors(self.observations)
            self.smoothed = hmm.smoothed_posteriors(self.observations)

    @torch.no_grad()
    def divergences(self, model: Callable[[Tensor], Tensor]) -> Divergences:
        """Return the mean KL(exact || model) over all positions, for both posteriors."""
        log_probs = model(self.observations)
        return Divergences(*(mean_kl(p, log_probs) for p in (self.filtered, self.smoothed)))

    @property
    def gap(self) -> float:
        """KL(smoothed || filtered): what the future adds, which no forward model has."""
        return mean_kl(self.smoothed, self.filtered.log())


def mean_kl(probs: Float[Tensor, "B T N"], log_probs: Float[Tensor, "B T N"]) -> float:
    """Return the mean over positions of sum_j p_j (log p_j - log_probs_j)."""
    return (torch.xlogy(probs, probs) - probs * log_probs).sum(dim=-1).mean().item()


def print_curves(
    variable: str, settings: dict[int, dict[str, int]], *, steps: int, seeds: int
) -> str:
    """Train both directions with each setting, print a table and return its chart."""
    exact = ExactPosteriors()
    typer.echo("\n" + heading([variable, *(f"{n:,}" for n in settings)]))
    lines = []
    for direction in DIRECTIONS:
        means = []
        for value, options in settings.items():
            typer.echo(f"{direction}, {variable} {value}", err=True)
            models = [train(direction, **options, steps=steps, seed=seed) for seed in range(seeds)]
            runs = torch.tensor([exact.divergences(model) for model in models])
            means.append(Divergences(*runs.mean(dim=0).tolist()))
        for name, values in zip(Divergences._fields, zip(*means, strict=True), strict=True):
            label = f"{direction}, {name}"
            typer.echo(row([label, *(f"{value:.4f}" for value in values)]))
            is_claimed = label in ("forward, filtered", "bidirectional, smoothed")
            points = list(zip(settings, values, strict=True))
            lines.append(LineSeries(label, points, dashed=not is_claimed))
    return render_line_chart(
        lines,
        title=f"KL divergence against {variable}",
        x_label=variable,
        y_label="KL(exact || model), nats per position",
        log_axes=(True, True),
    )


def main(
    output_dir: Annotated[Path, typer.Option(help="write charts to images/ in this folder")] = LAB,
    steps: Annotated[int, typer.Option(help="training steps", min=1)] = 1000,
    seeds: Annotated[int, typer.Option(help="number of seeds", min=1)] = 3,
    hidden_sizes: Annotated[
        list[int], typer.Option(help="hidden size, all directions together; repeatable", min=2)
    ] = list(HIDDEN_SIZES),  # noqa: B006
    data_sizes: Annotated[
        list[int], typer.Option(help="number of training sequences; repeatable", min=1)
    ] = list(DATA_SIZES),  # noqa: B006
) -> None:
    """Compare RNNs with the exact posteriors of a hidden Markov model.

    Example: python -m experiments.markov --steps 200 --seeds 1
    """
    torch.set_num_threads(1)
    exact = ExactPosteriors()
    typer.echo(f"torch {torch.__version__}, {seeds} seeds, {steps} steps of {BATCH_SIZE} sequences")
    typer.echo(f"KL(smoothed || filtered) of the exact posteriors: {exact.gap:.4f}")
    largest, most = max(hidden_sizes), max(data_sizes)
    by_size = {size: {"hidden_size": size, "num_sequences": most} for size in hidden_sizes}
    by_data = {count: {"hidden_size": largest, "num_sequences": count} for count in data_sizes}
    options = {"steps": steps, "seeds": seeds}
    for name, variable, settings in [
        ("markov-size", "hidden size", by_size),
        ("markov-data", "training sequences", by_data),
    ]:
        image = print_curves(variable, settings, **options)
        typer.echo(f"\nwrote {save(image, output_dir, name)}")


if __name__ == "__main__":
    typer.run(main)
