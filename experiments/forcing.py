"""Maps and causes: does a model follow its attention when it is forced elsewhere?

Claim: attention weights show what a prediction comes from. Measured on test sentences of trained
translators: whether a step says the word that another step said, if its attention is forced to
where that one looked; whether a step would say the same with equal weights on all words; whether an
output changes if a source word is hidden from every layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from experiments import heading, row
from heedful.attention.edits import SOURCE, AttentionEdit
from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.explanation import Explanation
from heedful.runs import Run, load

SMALL_EFFECT = 0.01  # nats: the probability of the word changes by 1 % or so


class Forced(NamedTuple):
    """A step whose attention is moved to where another step looked."""

    step: int
    position: int
    target: int
    """The token of the other step."""


class Counts(NamedTuple):
    """How often a forced step said something else, and what the other step had said."""

    num_cases: int = 0
    num_changed: int = 0
    num_followed: int = 0

    def add(self, before: int, after: int, target: int) -> Counts:
        """Count one case more."""
        changed, followed = after != before, after == target
        return Counts(self.num_cases + 1, self.num_changed + changed, self.num_followed + followed)


def cross_layers(explanation: Explanation) -> list[AttentionLayer]:
    """Return the layers that attend from outputs to the source."""
    return [layer for layer in explanation.layers if layer.kind == "cross"]


def strongest_positions(layers: Sequence[AttentionLayer]) -> NDArray[np.int64]:
    """Return where each step looks most, by the mean over layers and heads."""
    return np.mean([layer.weights.mean(axis=0) for layer in layers], axis=0).argmax(axis=-1)


def choose_case(explanation: Explanation, random: Random) -> Forced | None:
    """Return two steps that look at different words and say different ones; None without any."""
    tokens = explanation.result.token_ids
    looks = strongest_positions(cross_layers(explanation))[: len(tokens)]
    cases = [
        Forced(step, int(position), target)
        for step, (token, look) in enumerate(zip(tokens, looks, strict=True))
        for target, position in zip(tokens, looks, strict=True)
        if token != target and look != position
    ]
    return random.choice(cases) if cases else None


def force_edits(case: Forced, layers: Iterable[AttentionLayer]) -> list[AttentionEdit]:
    """Return edits that put all weight of a step on one position."""
    return [
        AttentionEdit(layer=layer.path, step=case.step, set={case.position: 1.0})
        for layer in layers
    ]


def scopes(layers: Sequence[AttentionLayer]) -> Iterator[tuple[str, Sequence[AttentionLayer]]]:
    """Yield all layers and, if there are several, each alone."""
    yield "all layers" if len(layers) > 1 else "the only layer", layers
    if len(layers) > 1:
        yield from ((f"layer {number} alone", [layer]) for number, layer in enumerate(layers, 1))


def measure_forcing(
    model: Any, explanations: Sequence[tuple[str, Explanation]], seed: int = 0
) -> dict[str, Counts]:
    """Force one step of each sentence, in all layers and in each; count what it says then."""
    random, counts = Random(seed), dict[str, Counts]()
    for text, explanation in explanations:
        case = choose_case(explanation, random)
        if case is None:
            continue
        for name, layers in scopes(cross_layers(explanation)):
            edited = model.with_edits(force_edits(case, layers))
            log_probs = edited.force(text, explanation.result, 1)
            after = int(log_probs[0, case.step].argmax())
            before = explanation.result.token_ids[case.step]
            counts[name] = counts.get(name, Counts()).add(before, after, case.target)
    return counts


def measure_effects(explanations: Iterable[Explanation]) -> dict[str, NDArray[np.float64]]:
    """Return by how much equal weights would change each step, in nats, by layer."""
    effects: dict[str, list[NDArray[np.float64]]] = {}
    for explanation in explanations:
        layers = [layer.path for layer in cross_layers(explanation)]
        for checks in explanation.checks:
            if checks.path in layers and checks.effects is not None:
                effects.setdefault(checks.path, []).append(checks.effects["uniform"])
    return {path: np.concatenate(values) for path, values in effects.items()}


def measure_hiding(
    model: Any, explanations: Iterable[tuple[str, Explanation]], seed: int = 0
) -> Counts:
    """Hide one source word of each sentence from all layers; count the outputs that change."""
    random, counts = Random(seed), Counts()
    for text, explanation in explanations:
        num_tokens = cross_layers(explanation)[0].weights.shape[-1]
        hidden = AttentionEdit(layer=SOURCE, scale={random.randrange(num_tokens): 0.0})
        output = next(iter(model.with_edits([hidden]).predict([text])))
        counts = counts.add(0, int(output.token_ids != explanation.result.token_ids), 0)
    return counts


def explain_test_set(run: Path, num_sentences: int) -> tuple[Any, list[tuple[str, Explanation]]]:
    """Load a run; return it with its explanations of test sentences."""
    recipe = Run.open(run).read_recipe()
    examples = islice(recipe.task.data.read_examples(recipe.data.test), num_sentences)
    model = load(run, device="cpu", task="translation")
    return model, [(example.source, model.explain(example.source)) for example in examples]


def main(
    runs: Annotated[list[Path], typer.Argument(help="folders written by `heedful train`")],
    *,
    num_sentences: Annotated[int, typer.Option(help="test sentences", min=1)] = 200,
) -> None:
    """Print how often translators follow their attention when it is forced elsewhere.

    Example: python -m experiments.forcing runs/latin runs/transformer
    Example: python -m experiments.forcing demo
    """
    forced, equal, hidden = [], [], []
    for run in runs:
        model, explanations = explain_test_set(run, num_sentences)
        for name, counts in measure_forcing(model, explanations).items():
            cells = percentages(counts, counts.num_changed, counts.num_followed)
            forced.append(row([f"`{run.name}`, {name}", str(counts.num_cases), *cells]))
        effects = measure_effects(explanation for _, explanation in explanations)
        for number, values in enumerate(effects.values(), 1):
            name = f"`{run.name}`, layer {number}" if len(effects) > 1 else f"`{run.name}`"
            small = f"{100 * np.mean(values < SMALL_EFFECT):.0f} %"
            equal.append(row([name, str(values.size), small, f"{np.median(values):.2f}"]))
        counts = measure_hiding(model, explanations)
        cells = percentages(counts, counts.num_cases - counts.num_changed)
        hidden.append(row([f"`{run.name}`", str(counts.num_cases), *cells]))
    for names, rows in (
        (["forced", "steps", "say another word", "say the word of that step"], forced),
        (["equal weights", "steps", f"effect < {SMALL_EFFECT} nats", "median effect"], equal),
        (["hidden word", "sentences", "output stays the same"], hidden),
    ):
        typer.echo("\n".join([heading(names), *rows, ""]))


def percentages(counts: Counts, *numbers: int) -> list[str]:
    """Return numbers of cases in percent."""
    return [f"{100 * number / max(counts.num_cases, 1):.0f} %" for number in numbers]


if __name__ == "__main__":
    typer.run(main)
