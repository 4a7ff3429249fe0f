"""Exercises of session 5: notes, vision, scores."""

from typing import Any

import torch
from torch import Tensor

from heedful.course.exercise import Exercise, Inputs, Mutant
from heedful.course.session_1 import integers, normal, run_exercise


def _draw_keys(generator: torch.Generator, index: int) -> Inputs:
    a, b, c = integers(generator, 1, 4, 3)
    return {"query": [1, 1], "keys": [[a, a], [b + 2, 0], [0, -c]]}


def _draw_points(generator: torch.Generator, index: int) -> Inputs:
    n = 10 + 2 * index
    x = torch.rand(n, generator=generator, dtype=torch.float64)
    y = torch.sin(6 * x) + 0.3 * normal(generator, n)
    return {
        "x": x,
        "y": y,
        "at": torch.linspace(0, 1, 7, dtype=torch.float64),
        "h": 0.02 * (1 + index % 5),
    }


def _draw_rotation(generator: torch.Generator, index: int) -> Inputs:
    size = 3 + index % 6
    q, r = torch.linalg.qr(normal(generator, size, size))
    return {"Q": q * r.diagonal().sign(), "states": normal(generator, 6, size)}


def _probe_rotation(answer: Any, Q: Tensor, states: Tensor) -> Any:
    W = answer.repair(Q)
    queries = states @ Q.T  # the decoder sees rotated states: q = Q h
    return W, answer.scores(queries, states, W)


def _draw_image(generator: torch.Generator, index: int) -> Inputs:
    size = 12 + index
    corner = [(0, 0), (size - 1, size - 1), (0, size - 1), (size // 2, size // 3)][index % 4]
    image = torch.rand(size, size, generator=generator)
    return {"image": image, "y": corner[0], "x": corner[1], "patch": 4, "num_scales": 3}


def _accept_sizes(outputs: Any, inputs: Inputs) -> str | None:
    small, large = outputs["small"], outputs["large"]
    if large["train"] > small["train"]:
        return f"the large vector has a training loss of {large['train']:.3f}, above the small one"
    if large["last"] < 1.1 * large["best"]:
        return (
            f"dev loss {large['last']:.3f} at the end, {large['best']:.3f} at best: no overfitting"
        )
    return None


SESSION: list[Exercise] = [
    Exercise(
        "5.1",
        "ANSWER",
        _draw_keys,
        (
            Mutant(
                "math.hypot(*query) * math.hypot(*key)",
                "1",
                "the cosine is divided by both lengths: the rankings differ",
            ),
            Mutant(
                "dots = [sum(",
                "dots = [0.5 * sum(",
                "the dot product is not scaled: 1 * 1 + 1 * 1 = 2",
            ),
        ),
        tolerance=3e-3,
        num_instances=1,
    ),
    Exercise(
        "5.2",
        "smooth",
        _draw_points,
        (
            Mutant("(2 * h**2)", "(2 * h)", "the exponent is -(x - x_i)^2 / (2 h^2): h is squared"),
            Mutant(
                "scores.softmax(-1)", "scores.exp()", "the weights of a query sum to 1: normalize"
            ),
            Mutant(
                "scores.softmax(-1)",
                "scores.softmax(0)",
                "softmax runs over the known points, not over the queries",
            ),
        ),
    ),
    Exercise(
        "5.3",
        "repair",
        _draw_rotation,
        (
            Mutant(
                "return Q  #",
                "return Q.T  #",
                "W = Q^T turns the wrong way: q W h with q = Q h needs Q^T W = 1",
            ),
            Mutant(
                "return Q  #",
                "return torch.eye(len(Q), dtype=Q.dtype)  #",
                "this is the dot product of two spaces: as good as chance",
            ),
        ),
        probe=_probe_rotation,
    ),
    Exercise(
        "5.4",
        "glimpse",
        _draw_image,
        (
            Mutant(
                "pad(image[None, None], (margin,) * 4)",
                "pad(image[None, None], (margin,) * 4, mode='replicate')",
                "outside the image is zero; here the border is repeated",
            ),
            Mutant(
                "avg_pool2d(window, 2**scale)",
                "window[..., :: 2**scale, :: 2**scale]",
                "larger windows are averaged, not sampled: every pixel counts",
            ),
            Mutant(
                "y + margin - side // 2",
                "y + margin - side // 2 + 1",
                "the window is one pixel too low: (y, x) is the pixel below and right of its "
                "center",
            ),
        ),
        tolerance=1e-5,
    ),
    Exercise(
        "5.5",
        "compare_sizes",
        lambda generator, index: {"seed": int(torch.randint(3, (), generator=generator))},
        (
            Mutant(
                "loss_of(model, *dev)",
                "loss_of(model, *train)",
                "dev loss is measured on the training set: it cannot show overfitting",
                lambda o: o["large"]["last"] < 0.1,
            ),
            Mutant(
                "min(dev_losses)",
                "dev_losses[-1]",
                "the best dev loss is the smallest one, not the last",
                lambda o: o["large"]["best"] == o["large"]["last"],
            ),
        ),
        accept=_accept_sizes,
        seconds=300,
        num_instances=1,
    ),
    run_exercise(
        "5.6",
        (("ram-2014-small", ("model.num_glimpses=1",)), ("ram-2014-small", ())),
        margin=-0.2,  # errors over ten seeds: 3.6 to 6.2 %, with six looks 0.4 to 5 points fewer
        metric=None,
    ),
]
