"""Attention weights of words over the grid of an image.

Cell (row, column) of a grid covers an equal part of the image. Invariant: no weight is negative,
and the weights of a word sum to one, or to less where a part of its attention went to no cell, such
as a sentinel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from heedful.errors import DataError, check, format_count
from heedful.inspection.attention_map import check_weights
from heedful.plotting import raster
from heedful.plotting.svg import escape_invisible, escape_line

if TYPE_CHECKING:
    from heedful.shapes import Float, Int  # at run time it would import torch

MAX_IMAGE_SIDE = 512
"""A larger image is shrunk before it becomes part of a figure or a page."""


class PeakCell(NamedTuple):
    """The cell with the largest weight of a word, counted from 0."""

    row: int
    column: int
    weight: float


@dataclass(frozen=True, eq=False)
class ImageAttention:
    """Attention weights of the words of a caption over the grid of an image."""

    image: Int[np.ndarray, "height width *channels"] | None
    """The image as the encoder gets it, uint8: the grid covers all of it. None: only the grid."""
    words: Sequence[str]
    """The words or tokens as shown."""
    weights: Float[np.ndarray, "T rows columns"]
    gates: Sequence[float] | None = None
    """How much of the image each word uses, 0 to 1: the gate of the readout, or one minus the
    weight of a sentinel; None if the model has neither."""
    title: str = ""
    """Name of the image."""
    caption: str = ""
    """The whole caption; by default the words."""
    label: str = ""
    """Which attention of the model this is, such as a layer and a head."""

    def __post_init__(self) -> None:
        location, shape = "caption_attention", self.weights.shape
        is_grid = len(shape) == 3 and shape[0] == len(self.words) and 0 not in shape[1:]
        count = format_count(len(self.words), "word")
        message = f"weights of {count} must be (words, rows, columns), found {shape}"
        check(is_grid, location, message, "give a grid of weights for each word", DataError)
        if self.image is not None:
            raster.to_rgb(self.image)  # checks it
        for word, grid in zip(self.words, self.weights, strict=True):
            check_weights(grid, f"{location}: {word!r}", "grid")
        gates, hint = self.gates, "give a number from 0 to 1 for each word, or None"
        if gates is not None:
            message = f"{format_count(len(gates), 'gate')} for {count}"
            check(len(gates) == len(self.words), location, message, hint, DataError)
            for word, gate in zip(self.words, gates, strict=True):
                message = f"the gate is {gate:.4g}"
                check(0 <= gate <= 1, f"{location}: {word!r}", message, hint, DataError)

    @property
    def is_empty(self) -> bool:
        """Whether there is no word."""
        return len(self.words) == 0

    @cached_property
    def rgb(self) -> Int[np.ndarray, "height width 3"] | None:
        """The image as RGB, shrunk to `MAX_IMAGE_SIDE`."""
        if self.image is None:
            return None
        return raster.shrink(raster.to_rgb(self.image), MAX_IMAGE_SIDE)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image, or rows and columns of the grid."""
        height, width = (self.weights[0] if self.rgb is None else self.rgb).shape[:2]
        return height, width

    @cached_property
    def strengths(self) -> Float[np.ndarray, "T rows columns"]:
        """The weights relative to the largest one of their word: how strongly they are drawn."""
        largest = self.weights.max(axis=(1, 2), keepdims=True, initial=0)
        return np.divide(self.weights, largest, out=np.zeros(self.weights.shape), where=largest > 0)

    @cached_property
    def peaks(self) -> list[PeakCell]:
        """The cell that each word attends to most."""
        peaks = []
        for grid in self.weights:
            row, column = divmod(int(grid.argmax()), grid.shape[1])
            peaks.append(PeakCell(row, column, float(grid[row, column])))
        return peaks

    @property
    def notes(self) -> list[str]:
        """The largest weight and the gate of each word."""
        notes = [f"max {_round_percent(peak.weight)}" for peak in self.peaks]
        if self.gates is None:
            return notes
        gates = (f"gate {_round_percent(gate)}" for gate in self.gates)
        return [", ".join(pair) for pair in zip(notes, gates, strict=True)]

    @property
    def heading(self) -> tuple[str, str, str]:
        """The name of the image, the caption and what the weights are, each on one line."""
        caption = self.caption or " ".join(self.words)
        return escape_line(self.title), escape_line(caption), escape_line(self.label)

    @property
    def description(self) -> str:
        """The strongest cell of each word, for readers who cannot see the figure."""
        links = [
            f"{escape_invisible(word)}: row {peak.row + 1}, column {peak.column + 1}, {note}"
            for word, peak, note in zip(self.words, self.peaks, self.notes, strict=True)
        ]
        rows, columns = self.weights.shape[1:]
        label = f"{self.label}. " if self.label else ""
        return (
            f"{label}The cell of {rows} x {columns} each word attends to most. {'; '.join(links)}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: the words, their grids of weights, and gates if there are any."""
        weights = self.weights.astype(np.float64).round(6).tolist()
        fields = {"label": self.label, "words": list(self.words), "weights": weights}
        if self.gates is not None:
            fields["gates"] = np.round(self.gates, 6).tolist()
        return fields


def _round_percent(weight: float) -> str:
    """Return a percentage without decimals; of what would be rounded to 0, a bound."""
    rounded = int(100 * weight + 0.5)
    return f"{rounded}%" if rounded or not weight else "<1%"
