"""Exercises of session 4: attentional seq2seq."""

import math
from typing import Any

import torch
from torch import Tensor

from heedful.course.exercise import Exercise, Inputs, Mutant
from heedful.course.session_1 import integers, normal


def _draw_paper_weights(generator: torch.Generator, index: int) -> Inputs:
    shares = sorted(integers(generator, 5, 40, 4))
    shares[-1] += 40  # a score far from log 2, or doubling would look like adding
    return {"weights": [round(share / sum(shares), 3) for share in reversed(shares)], "factor": 2}


def _draw_orders(generator: torch.Generator, index: int) -> Inputs:
    S, D, Y = 3 + index % 5, 4, 3
    shapes = {"y": (Y,), "s": (D,), "H": (S, D), "W": (D, D), "A": (D, Y + D), "C": (D, Y + 2 * D)}
    return {name: normal(generator, *shape) for name, shape in shapes.items()}


def _probe_orders(
    answer: Any, y: Tensor, s: Tensor, H: Tensor, W: Tensor, A: Tensor, C: Tensor
) -> Any:
    y.requires_grad_()
    outputs: list[Tensor] = []
    for state, weights in (answer.bahdanau_step(y, s, H, W, C), answer.luong_step(y, s, H, W, A)):
        outputs += [state, weights]
        depends = (
            weights.requires_grad
            and torch.autograd.grad(weights[0], y, retain_graph=True, allow_unused=True)[0]
        )
        is_used = isinstance(depends, Tensor) and bool(depends.abs().sum() > 0)
        outputs.append(torch.tensor(float(is_used)))  # whether the weights depend on y
    return outputs


def _draw_scores(generator: torch.Generator, index: int) -> Inputs:
    B, T, S, D, E, A = 1 + index % 3, 2 + index % 4, 3 + index % 4, 3, 5, 4
    shapes = {"h": (B, T, D), "s": (B, S, E), "W": (D, E), "W_1": (A, D + E), "w_2": (A,)}
    inputs: Inputs = {name: normal(generator, *shape) for name, shape in shapes.items()}
    return inputs | {"same": normal(generator, B, S, D)}


def _probe_scores(
    answer: Any, h: Tensor, s: Tensor, W: Tensor, W_1: Tensor, w_2: Tensor, same: Tensor
) -> Any:
    return [answer.dot(h, same), answer.bilinear(h, s, W), answer.mlp(h, s, W_1, w_2)]


def _accept_forcing(outputs: Any, inputs: Inputs) -> str | None:
    forced, free = outputs["forced"], outputs["free"]
    if free > forced + 0.01:
        return f"free running is at {free:.3f}, above teacher forcing: {forced:.3f}"
    if free < 0.15:
        return f"free running is near chance: {free:.3f}"
    if forced - free < 0.05:
        return f"free {free:.3f} and forced {forced:.3f} are nearly equal"
    return None


def _draw_penalty(generator: torch.Generator, index: int) -> Inputs:
    word, eos = 0.5 + 0.05 * (index % 6), 0.02 + 0.01 * (index % 7)
    return {"word": word, "eos": eos, "alpha": (0.0, 0.6, 1.0)[index % 3], "longest": 15 + index}


def _draw_other_weights(generator: torch.Generator, index: int) -> Inputs:
    S, D = 10 + index % 6, 3 + index % 3
    return {"V": normal(generator, S, D), "a": (0.5 * normal(generator, S)).softmax(0)}


def _accept_other_weights(outputs: Any, inputs: Inputs) -> str | None:
    V, a, b = inputs["V"], inputs["a"], outputs
    if not isinstance(b, Tensor) or b.shape != a.shape:
        return f"weights of the shape {tuple(a.shape)} are expected"
    if b.min() < -1e-12:
        return f"a weight is negative: {b.min().item():.3g}"
    if abs(b.sum().item() - 1) > 1e-10:
        return f"the weights sum to {b.sum().item():.6g}"
    if (b @ V - a @ V).abs().max() > 1e-10:
        return f"the context moves by {(b @ V - a @ V).abs().max().item():.3g}"
    if (distance := (a - b).abs().sum().item() / 2) < 0.05:
        return f"the total variation is {distance:.3g}: walk further"
    return None


def _is_negative(outputs: Any) -> bool:
    return isinstance(outputs, Tensor) and bool(outputs.min() < -1e-12)


def _is_short(outputs: Any) -> bool:
    return (
        isinstance(outputs, Tensor)
        and math.isclose(outputs.sum().item(), 1)
        and not _is_negative(outputs)
    )


SESSION: list[Exercise] = [
    Exercise(
        "4.1",
        "ANSWER",
        _draw_paper_weights,
        (
            Mutant(
                "- mean for",
                "for",
                "these are logarithms of the weights, and right up to a constant: make their sum 0",
            ),
            Mutant(
                "factor * scores[0], *scores[1:]",
                "math.log(factor) + scores[0], *scores[1:]",
                "the weight is doubled, and the others shrink; scaling a state doubles the score",
            ),
        ),
        tolerance=0.015,
        num_instances=1,
    ),
    Exercise(
        "4.2",
        "bahdanau_step",
        _draw_orders,
        (
            Mutant(
                "attend(s, H, W)  # before",
                "attend(torch.tanh(C[:, :-4] @ torch.cat([y, s])), H, W)",
                "Bahdanau attends with the state before the step: the weights must not depend on y",
            ),
            Mutant(
                "attend(s_new, H, W)",
                "attend(s, H, W)",
                "Luong attends with the state after the step: y enters it first",
            ),
            Mutant(
                "torch.cat([y, s, c])",
                "torch.cat([y, s, 0 * c])",
                "in Bahdanau's step the context is an input of the cell",
            ),
        ),
        probe=_probe_orders,
    ),
    Exercise(
        "4.3",
        "bilinear",
        _draw_scores,
        (
            Mutant(
                "h @ s.mT",
                "h @ s",
                "h @ s needs S = D: keys stand in rows, so transpose the last two axes",
            ),
            Mutant(
                "h @ W @ s.mT", "s @ W.mT @ h.mT", "rows are queries (B, T, S); this is (B, S, T)"
            ),
            Mutant("[h_pairs, s_pairs]", "[s_pairs, h_pairs]", "W_1 [h; s] has h first"),
        ),
        probe=_probe_scores,
    ),
    Exercise(
        "4.4",
        "forcing",
        lambda generator, index: {"seed": int(torch.randint(3, (), generator=generator))},
        (
            Mutant(
                "inputs = chosen",
                "inputs = tokens[:, t + 1]",
                "free running is fed with gold tokens: is y or the own output the next input?",
                lambda o: abs(o["free"] - o["forced"]) < 0.05,
            ),
            Mutant(
                "model(inputs[:, None], state)",
                "model(inputs[:, None])",
                "the state is lost between the steps: pass it on",
                lambda o: o["free"] < 0.15,
            ),
        ),
        accept=_accept_forcing,
        seconds=300,
        num_instances=1,
    ),
    Exercise(
        "4.5",
        "best_length",
        _draw_penalty,
        (
            Mutant(
                "log_p / (n + 1) ** alpha",
                "log_p",
                "the penalty is missing: without it the empty output wins",
            ),
            Mutant(
                "(n + 1) ** alpha",
                "max(n, 1) ** alpha",
                "the end is a token, too: n words are n + 1 tokens",
            ),
            Mutant(
                "(n + 1) ** alpha",
                "(n + 1) * alpha if alpha else log_p",
                "the penalty is a power of the length",
            ),
        ),
    ),
    Exercise(
        "4.6",
        "other_weights",
        _draw_other_weights,
        (
            Mutant(
                "return b  # done",
                "return b + 3 * direction * step",
                "weights must not be negative: walk until the first one is 0",
                _is_negative,
            ),
            Mutant(
                "return b  # done",
                "c = (a + 3 * direction * step).clamp(min=0); return c / c.sum()",
                "clipping and normalizing again moves the context: stay in the null space",
                _is_short,
            ),
        ),
        accept=_accept_other_weights,
    ),
]
