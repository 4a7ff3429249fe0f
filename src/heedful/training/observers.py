"""Observers: who is told how training goes.

An observer sees what happened and cannot steer it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Report(NamedTuple):
    """What one update did."""

    step: int
    loss: float  # per real target token, without penalties
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int  # real tokens of both sides
    num_targets: int  # real target tokens
    penalties: Mapping[str, float]  # what was added to the loss, by name, per real target token
    skipped: str = ""  # why nothing was learned; nothing if something was


class Sample(NamedTuple):
    """What the model made of one held-out example, and where it looked."""

    source: list[str]  # as shown
    reference: str
    output: list[str]  # as shown
    text: str
    weights: Sequence[Sequence[float]]  # (output, source); nothing where there is no attention


class Validation(NamedTuple):
    """How the model did on what it has not seen."""

    step: int
    seconds: float  # since training began
    scores: Mapping[str, float]  # "loss", "accuracy", and those asked for, by name
    is_best: bool
    samples: Sequence[Sample] = ()


class Observer:
    """Is told of every update and every validation; by itself it does nothing with that."""

    def updated(self, report: Report) -> None:
        """Hear of an update."""

    def validated(self, validation: Validation) -> None:
        """Hear of a validation."""

    def closed(self) -> None:
        """Hear that nothing more will come, for now."""
