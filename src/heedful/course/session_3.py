"""Exercises of session 3: from RNNs to attention, copying, hard attention."""

from typing import Any

import torch

from heedful.course.exercise import Exercise, Inputs, Mutant
from heedful.course.session_1 import normal, run_exercise


def _draw_chain(generator: torch.Generator, index: int) -> Inputs:
    stay, high, low = (0.6, 0.7, 0.8, 0.9), (0.7, 0.8, 0.9), (0.1, 0.2, 0.3)
    pick = [int(torch.randint(9, (), generator=generator)) for _ in range(3)]
    return {
        "start": [0.5, 0.5],
        "stay": stay[pick[0] % 4],
        "p_one": [high[pick[1] % 3], low[pick[2] % 3]],
        "observed": [1, 0],
    }


def _draw_recurrence(generator: torch.Generator, index: int) -> Inputs:
    size, n = 4 + index % 3, 3 + index % 8
    q, r = torch.linalg.qr(normal(generator, size, size))
    rho = (0.5, 0.9, 1.0, 1.1)[index % 4]
    return {"W": rho * q * r.diagonal().sign(), "h0": 1e-4 * normal(generator, size), "n": n}


def _draw_copy(generator: torch.Generator, index: int) -> Inputs:
    V, S = 5 + index % 3, 4 + index
    ids = torch.randint(V + 3, (S,), generator=generator)
    ids[0] = ids[1] = V + 1  # a word that is twice in the source, and not in the vocabulary
    return {
        "p_gen": normal(generator, V).softmax(-1),
        "gate": torch.rand((), generator=generator, dtype=torch.float64),
        "weights": normal(generator, S).softmax(-1),
        "source_ids": ids,
        "size": V + 3,
    }


def _draw_hard(generator: torch.Generator, index: int) -> Inputs:
    S = 3 + index % 5
    return {
        "scores": normal(generator, S),
        "values": normal(generator, S),
        "target": normal(generator),
        "baseline": normal(generator).abs(),
    }


def _accept_forward(outputs: Any, inputs: Inputs) -> str | None:
    if outputs["forward"]["filtered"] > 0.02:
        divergence = outputs["forward"]["filtered"]
        return f"KL of the forward RNN to the filtered posterior is {divergence:.3f}"
    if outputs["both"]["smoothed"] > 0.02:
        return (
            f"KL of the bidirectional RNN to the smoothed one is {outputs['both']['smoothed']:.3f}"
        )
    if min(outputs["forward"]["smoothed"], outputs["both"]["filtered"]) < 0.03:
        return "both posteriors fit equally well: are they different at all?"
    return None


def _fits_filtered(outputs: Any) -> bool:
    return outputs["forward"]["filtered"] <= 0.02


SESSION: list[Exercise] = [
    Exercise(
        "3.1",
        "ANSWER",
        _draw_chain,
        (
            Mutant(
                "predicted = [sum(",
                "predicted = first if stay else [sum(",
                "the transition is missing: predict before you multiply by the second observation",
            ),
            Mutant(
                '"smoothed_1": smoothed',
                '"smoothed_1": first',
                "the second observation also speaks about t=1: smoothed is not filtered",
            ),
            Mutant(
                "emission(observed[1])",
                "emission(observed[0])",
                "the second observation is 0: its probability is 1 - p",
            ),
        ),
        tolerance=3e-3,
        num_instances=1,
    ),
    Exercise(
        "3.2",
        "norms",
        _draw_recurrence,
        (
            Mutant(
                "(1 - h**2)[:, None] * W",
                "W + 0 * h",
                "the derivative of tanh is missing; for small h alone it is 1",
                None,
            ),
            Mutant(
                "(1 - h**2)[:, None] * W @ jacobian",
                "jacobian @ ((1 - h**2)[:, None] * W) + torch.eye(len(W), dtype=W.dtype)",
                "a sum over all steps hides what vanishes: take the derivative of the last state "
                "alone",
            ),
            Mutant(
                "sum(jacobians) / len(jacobians)",
                "sum(jacobians)",
                "the gradient through attention carries the weight 1 / (n + 1)",
            ),
        ),
        tolerance=1e-9,
    ),
    Exercise(
        "3.3",
        "mix",
        _draw_copy,
        (
            Mutant(
                "out.index_add(0, source_ids, copied)",
                "out.index_copy(0, source_ids, copied)",
                "a word that is twice in the source gets the weight of one place: add them",
            ),
            Mutant(
                "out.index_add(0, source_ids, copied)",
                "out.index_add(0, source_ids, copied * (source_ids < len(p_gen)))",
                "unknown words of the source are dropped: the distribution no longer sums to 1",
            ),
            Mutant(
                "(1 - gate) * weights",
                "weights",
                "the gate shares one unit of probability: copies have 1 - gate of it",
            ),
        ),
    ),
    Exercise(
        "3.4",
        "estimators",
        _draw_hard,
        (
            Mutant(
                "(losses[i] - baseline) * score",
                "(losses[i] - baseline * losses[i]) * score",
                "the baseline depends on the sampled position, so the mean is no longer the "
                "gradient",
            ),
            Mutant(
                "one_hot[i] - p",
                "one_hot[p.argmax()] - p",
                "log p of the likeliest position; it has to be that of the sample",
            ),
            Mutant(
                "2 * (values[i] - target) * jacobian @ values",
                "losses[i] * (one_hot[i] - p)",
                "straight-through is not REINFORCE: it passes the gradient of the context "
                "through softmax",
            ),
        ),
    ),
    Exercise(
        "3.5",
        "posteriors",
        lambda generator, index: {"seed": int(torch.randint(3, (), generator=generator))},
        (
            Mutant(
                "bidirectional=False",
                "bidirectional=True",
                "the first RNN reads the future, too: it learns the smoothed posterior",
                lambda o: not _fits_filtered(o) and o["forward"]["smoothed"] < 0.02,
            ),
            Mutant(
                "alpha * beta",
                "alpha * 1",
                "smoothed posteriors need the messages from the right",
                lambda o: _fits_filtered(o) and o["both"]["smoothed"] > 0.02,
            ),
        ),
        accept=_accept_forward,
        seconds=300,
        num_instances=1,
    ),
    run_exercise(
        "3.6",
        (
            (
                "simple-rnn-attention-small",
                (
                    "model.decoder.attention.alignment.type=fixed",
                    "model.decoder.attention.alignment.pattern=diagonal",
                ),
            ),
            ("simple-rnn-attention-small", ()),
        ),
        margin=30,
    ),
]
