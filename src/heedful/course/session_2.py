"""Exercises of session 2: the mechanism, captions, Transformers."""

from typing import Any

import torch
from torch import Tensor

from heedful.course.exercise import Exercise, Inputs, Mutant
from heedful.course.session_1 import normal


def _draw_stats(generator: torch.Generator, index: int) -> Inputs:
    d = 2 ** (2 + index % 6)
    q, k = normal(generator, 50, d), normal(generator, 50, 10, d)
    return {"q": q, "k": k, "scaled": bool(index % 2)}


def _draw_masked(generator: torch.Generator, index: int) -> Inputs:
    B, S = 2 + index % 3, 3 + index % 5
    mask = torch.rand(B, S, generator=generator) < 0.6
    mask[0], mask[1, 0] = False, True
    scores = 3 * torch.randn(B, S, generator=generator)
    return {"scores": scores.to([torch.float32, torch.float16][index % 2]), "mask": mask}


def _probe_masked(answer: Any, scores: Tensor, mask: Tensor) -> Any:
    scores.requires_grad_()
    weights = answer.safe_softmax(scores, mask)
    (gradient,) = torch.autograd.grad((weights.float() ** 2).sum(), scores)
    return weights.double(), gradient.double()


def _draw_positions(generator: torch.Generator, index: int) -> Inputs:
    t, k = (int(value) for value in torch.randint(1, 40, (2,), generator=generator))
    return {"t": t, "k": k, "size": 4 + 2 * (index % 4)}


def _probe_positions(answer: Any, t: int, k: int, size: int) -> Any:
    return answer.encoding(t, size), answer.rotation(k, size)


def _accept_language_model(outputs: Any, inputs: Inputs) -> str | None:
    entropy, masked, unmasked, sampled, leak = outputs
    if leak > 0:
        return "leak: changing token j changes outputs before j; the mask lets later tokens in"
    if abs(masked - entropy) > 0.25:
        return f"with the mask the loss is {masked:.3f}; the entropy of the chain is {entropy:.3f}"
    if unmasked > 1.0:
        return f"without the mask the loss is {unmasked:.3f}: the model cannot see the next token"
    if sampled < 1.5 * entropy:
        return (
            f"-log P of the samples of the cheating model is {sampled:.3f}: too good to be its own"
        )
    return None


def _accept_lengths(outputs: Any, inputs: Inputs) -> str | None:
    inside, beyond = outputs["inside"], outputs["beyond"]
    for name in ("learned", "sin", "alibi"):
        if inside[name] < 0.9:
            return f"{name} has not learned the task: {inside[name]:.2f} within the training length"
    if beyond["alibi"] < 0.8:
        return f"ALiBi falls to {beyond['alibi']:.2f} beyond the training length"
    if beyond["sin"] > 0.4:
        return f"sin keeps {beyond['sin']:.2f} beyond the training length: are tests longer at all?"
    return None


def _accept_heads(outputs: Any, inputs: Inputs) -> str | None:
    if outputs["one"] > 0.6:
        return (
            f"one head explains {outputs['one']:.2f} of the variance: do the keys see the values?"
        )
    if outputs["two"] < 0.9:
        return f"two heads explain {outputs['two']:.2f} of the variance"
    return None


SESSION: list[Exercise] = [
    Exercise(
        "2.1",
        "stats",
        _draw_stats,
        (
            Mutant(
                "scores / d**0.5",
                "scores / d",
                "divided by d instead of its root: the spread falls with d, and d=1024 attends "
                "to nothing",
            ),
            Mutant(
                "if scaled else scores",
                "if not scaled else scores",
                "scaled and unscaled are exchanged",
            ),
            Mutant(
                "a * (1 - a)",
                "a",
                "the derivative of softmax with respect to its own score is a (1 - a)",
            ),
        ),
        probe=lambda answer, q, k, scaled: answer.stats(q, k, scaled=scaled),
    ),
    Exercise(
        "2.2",
        "safe_softmax",
        _draw_masked,
        (
            Mutant(
                "torch.finfo(scores.dtype).min",
                "-torch.inf",
                "a fully masked row is softmax of -inf alone: NaN",
            ),
            Mutant(
                "filled.softmax(-1) * mask",
                "(scores + (0 * scores).masked_fill(~mask, -torch.inf)).softmax(-1).nan_to_num()",
                "nan_to_num repairs the forward pass; the gradient of the masked row is still NaN",
            ),
            Mutant(
                "filled.softmax(-1) * mask",
                "filled.softmax(-1)",
                "a fully masked row gives 1/n to each padding position: multiply by the mask",
            ),
            Mutant(
                "filled.softmax(-1) * mask",
                "scores.softmax(-1) * mask",
                "the mask comes after softmax: rows no longer sum to 1",
            ),
        ),
        probe=_probe_masked,
        tolerance=1e-3,
    ),
    Exercise(
        "2.3",
        "rotation",
        _draw_positions,
        (
            Mutant(
                "[[cos, sin], [-sin, cos]]",
                "[[cos, -sin], [sin, cos]]",
                "this turns by -k: it maps p(t) to p(t - k). Check it at t = 0",
            ),
            Mutant("block(k * frequency)", "block(frequency)", "the angle does not depend on k"),
            Mutant("2 * i / size", "i / size", "pair i has the frequency 10000^(-2 i / size)"),
        ),
        probe=_probe_positions,
    ),
    Exercise(
        "2.4",
        "cheating",
        lambda generator, index: {"seed": int(torch.randint(3, (), generator=generator))},
        (
            Mutant(
                "torch.ones(T, T).tril().bool()",
                "torch.ones(T, T).triu().bool()",
                "the mask is transposed: rows are queries, and query t may see keys up to t",
                lambda o: o[4] > 0 and o[1] < 1.2,
            ),
            Mutant(
                "write(unmasked, generator)",
                "write(masked, generator)",
                "the texts are those of the model with the mask: let the cheating one write",
                lambda o: o[4] == 0 and o[3] < 1.5 * o[0],
            ),
        ),
        accept=_accept_language_model,
        seconds=300,
        num_instances=1,
    ),
    Exercise(
        "2.5",
        "compare_positions",
        lambda generator, index: {"seed": int(torch.randint(3, (), generator=generator))},
        (
            Mutant(
                "-(t - s).abs()",
                "(t - s).abs()",
                "ALiBi takes away from the score with distance: the sign is wrong",
                lambda o: o["inside"]["alibi"] < 0.9 or o["beyond"]["alibi"] < 0.8,
            ),
            Mutant(
                "sample(200, 24)",
                "sample(200, 12)",
                "the tests are not longer than the training: ask for positions 13 to 24",
                lambda o: o["beyond"]["sin"] > 0.4,
            ),
        ),
        accept=_accept_lengths,
        seconds=300,
        num_instances=1,
    ),
    Exercise(
        "2.6",
        "explained",
        lambda generator, index: {"seed": int(torch.randint(3, (), generator=generator))},
        (
            Mutant(
                "self.keys(marks)",
                "self.keys(torch.cat([marks, 0 * values], -1)[..., :2] + values[..., :2])",
                "the keys see the values, so the scores depend on more than the marks",
                lambda o: o["one"] < 0.4,
            ),
            Mutant(
                "num_heads=2",
                "num_heads=1",
                "the second model has one head, too",
                lambda o: 0.4 <= o["one"] <= 0.6 and o["two"] < 0.9,
            ),
        ),
        accept=_accept_heads,
        seconds=300,
        num_instances=1,
    ),
]
