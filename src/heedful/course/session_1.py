"""Exercises of session 1: attention in simple RNNs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedful.course.exercise import Exercise, Inputs, Mutant


def integers(generator: torch.Generator, low: int, high: int, count: int) -> list[int]:
    """Return different integers."""
    order = torch.randperm(high - low, generator=generator)[:count]
    return [low + int(value) for value in order]


def normal(generator: torch.Generator, *sizes: int) -> Tensor:
    """Return a random tensor in float64."""
    return torch.randn(sizes, generator=generator, dtype=torch.float64)


def _draw_weights(generator: torch.Generator, index: int) -> Inputs:
    ratios = integers(generator, 1, 10, 3)
    states = [integers(generator, 0, 5, 2) for _ in range(3)]
    return {"exp_scores": ratios, "states": states}


def _draw_split(generator: torch.Generator, index: int) -> Inputs:
    size_h, size_s, hidden = 3 + index, 5 + 2 * index, 4 + index
    return {
        "W": normal(generator, hidden, size_h + size_s),
        "h": normal(generator, size_h),
        "s": normal(generator, size_s),
        "v": normal(generator, hidden),
    }


def _probe_split(answer: Any, W: Tensor, h: Tensor, s: Tensor, v: Tensor) -> Any:
    W_h, W_s = answer.split(W, len(h))
    return W_h, W_s, answer.additive(h, s, W_h, W_s, v)


def _draw_step(generator: torch.Generator, index: int) -> Inputs:
    B, S, D, X, A = 2 + index % 3, 3 + index, 5, 7, 5
    return {
        "x": normal(generator, B, X),
        "s": normal(generator, B, D),
        "H": normal(generator, B, S, D),
        "W_h": normal(generator, A, D),
        "W_s": normal(generator, A, D),
        "A": normal(generator, D, X + 2 * D),
        "b": normal(generator, D),
    }


def _draw_cells(generator: torch.Generator, index: int) -> Inputs:
    T, X, D = 1 + index % 6, 3, 5
    shapes = {"xs": (T, X), "A": (D, X + D), "b": (D,), "v": (4,)}
    shapes |= {"W_x": (4, X), "W_c": (4, D), "W_h": (4, D)}
    return {name: normal(generator, *shape) for name, shape in shapes.items()}


def _probe_cells(
    answer: Any,
    xs: Tensor,
    A: Tensor,
    b: Tensor,
    v: Tensor,
    W_x: Tensor,
    W_c: Tensor,
    W_h: Tensor,
) -> Any:
    return answer.slide(xs, A, b), answer.paper(xs, A, b, v, W_x, W_c, W_h)


def _draw_lengths(generator: torch.Generator, index: int) -> Inputs:
    return {"lengths": sorted(integers(generator, 5, 30, 3 + index % 3))}


def accept_scores(margin: float) -> Callable[[Any, Inputs], str | None]:
    """Return a check: given scores are the measured ones, and the second is better.

    `margin` is the least difference, negative for errors.
    """

    def accept(outputs: Any, inputs: Inputs) -> str | None:
        for place, pair in enumerate(zip(outputs["given"], outputs["measured"], strict=True), 1):
            if abs(pair[0] - pair[1]) > 0.6:
                return f"score {place} is {pair[0]}, but heedful evaluate gives another one"
        first, second = outputs["measured"]
        is_enough = (second - first) / margin >= 1
        message = f"the second score is not better by {abs(margin)}: train to the end"
        return None if is_enough else message

    return accept


def is_close(first: list[float], second: list[float]) -> bool:
    """Whether scores are equal but for rounding."""
    return all(abs(a - b) < 0.6 for a, b in zip(first, second, strict=True))


MIXED_UP = (  # of exercises whose answers are scores of runs
    Mutant(
        '"given": MEASURED',
        '"given": MEASURED[::-1]',
        "the scores are in the wrong order: the first belongs to the first run",
        lambda o: is_close(o["given"], o["measured"][::-1]),
    ),
    Mutant(
        '"given": MEASURED',
        '"given": [score / 100 for score in MEASURED]',
        "scores are percent, not fractions",
        lambda o: is_close([100 * one for one in o["given"]], o["measured"]),
    ),
)


def run_exercise(
    number: str,
    runs: tuple[tuple[str, tuple[str, ...]], ...],
    margin: float,
    metric: str | None = "exact-match",
) -> Exercise:
    """Return an exercise whose answer is the scores of two runs."""
    return Exercise(
        number,
        "ANSWER",
        lambda generator, index: {},
        MIXED_UP,
        accept=accept_scores(margin),
        seconds=300,
        num_instances=1,
        runs=runs,
        metric=metric,
    )


SESSION: list[Exercise] = [
    Exercise(
        "1.1",
        "ANSWER",
        _draw_weights,
        (
            Mutant(
                "exps = exp_scores",
                "exps = [math.log(each) for each in exp_scores]",
                "the weights are scores divided by their sum: normalize e^score, not the score",
            ),
            Mutant(
                '"after": weights',
                '"after": [(math.log(e) + 5) / sum(math.log(o) + 5 for o in exps) for e in exps]',
                "adding 5 to every score multiplies every e^score by e^5: the factor cancels",
            ),
            Mutant(
                "zip(weights, states, strict=True)) for",
                "zip(exps, states, strict=True)) for",
                "the context is a sum with weights that sum to 1: divide by the sum of e^score",
            ),
        ),
        tolerance=2e-3,
        num_instances=1,
    ),
    Exercise(
        "1.2",
        "additive",
        _draw_split,
        (
            Mutant(
                "W[:, :size_h], W[:, size_h:]",
                "W[:size_h], W[size_h:]",
                "these are rows of W. [h; s] is multiplied by its columns: split those",
            ),
            Mutant(
                "W[:, :size_h], W[:, size_h:]",
                "W[:, -size_h:], W[:, :-size_h]",
                "which half of W multiplies h? h stands first in [h; s]",
            ),
            Mutant(
                "(W_h @ h + W_s @ s).tanh()",
                "((W_h @ h).tanh() + (W_s @ s).tanh())",
                "tanh is not linear: add first, then take tanh once",
            ),
        ),
        probe=_probe_split,
    ),
    Exercise(
        "1.3",
        "step",
        _draw_step,
        (
            Mutant(
                "softmax(-1)",
                "softmax(0)",
                "which axis are the words? softmax runs over sentences: rows do not sum to 1",
            ),
            Mutant(
                "[..., None] * H,",
                "[..., None] * (H @ W_h.T),",
                "the values are the raw states h_i; W_h is for the score alone",
            ),
            Mutant(
                "[x, s, c]",
                "[x, 0 * s, c]",
                "the new state does not depend on s: the context is added to [x; s], it replaces "
                "nothing",
            ),
            Mutant("torch.tanh(torch", "(torch", "the step of a SimpleRNN ends in tanh"),
        ),
    ),
    Exercise(
        "1.4",
        "paper",
        _draw_cells,
        (
            Mutant(
                "    history.append(h)  # slide\n        c = attend(history, c)",
                "    c = attend(history, c) if history else c\n        history.append(h)",
                "on the slide c_t sums h_1 to h_t: append h before attending. At T=1, c_1 = h_1",
            ),
            Mutant(
                "v @ torch.tanh(W_x @ x + W_c @ c + W_h @ old)",
                "v @ torch.tanh(W_c @ c + W_h @ old)",
                "the paper's query is x_t and c_{t-1}: the new input is missing",
            ),
            Mutant(
                "torch.tanh(A @ torch.cat([x, c]) + b)  # paper",
                "torch.tanh(A @ torch.cat([x, history[-1] if history else c]) + b)",
                "the context takes the place of h_{t-1} in the step; h_{t-1} is still there",
            ),
        ),
        probe=_probe_cells,
    ),
    Exercise(
        "1.6",
        "exponents",
        _draw_lengths,
        (
            Mutant(
                "scores += length",
                "scores += 1",
                "a call of the batched score is counted once: count the pairs that it compares",
            ),
            Mutant(
                "cells += 1  # decoder",
                "cells += length",
                "one step of the decoder is one call of its cell, however long the source is",
            ),
            Mutant(
                "math.log(pairs[-1] / pairs[0])",
                "pairs[-1] / pairs[0]",
                "an exponent is the slope of logarithms: both axes need a logarithm",
            ),
        ),
        tolerance=0.02,
    ),
    run_exercise(
        "1.5", (("seq2seq-2014-small", ()), ("simple-rnn-attention-small", ())), margin=10
    ),
]
