"""Initial values: from where does learning begin?

A way of beginning is laid over a whole model once it is built. It goes by what a weight belongs
to: the layers of torch that parts are made of, and among them recurrences and scores. What a part
sets by its own law, such as a learned sharpness or the gain of a norm, stays, and so does the
padding's vector of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import nn

from heedful.attention import AdditiveScore, ConcatScore, Score
from heedful.config import Choice
from heedful.layers.cells import Cell
from heedful.layers.experts import NoisyTopGate

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.RNNBase)
_RECURRENT = ("weight_hh", "of_hidden", "of_recalled")  # what meets a state, by name


class DefaultInitConfig(Choice):
    """Leave every weight as the part it belongs to made it."""

    kind: Literal["default"] = "default"

    def initialise(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""


class UniformInitConfig(Choice):
    """Draw every weight evenly from -range to range.

    The range is 0.1 in Luong et al. (2015), 0.08 in Sutskever et al. (2014) and 0.04 in Wu et al.
    (2016, GNMT).
    """

    kind: Literal["uniform"] = "uniform"
    range: PositiveFloat = 0.1
    """The largest value that can be drawn."""

    @torch.no_grad()
    def initialise(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        for _, weight in _weights(model):
            weight.uniform_(-self.range, self.range)
        _empty_padding(model)


class BahdanauInitConfig(Choice):
    """Begin as Bahdanau et al. (2015, section B.1) did: attention is even at first."""

    kind: Literal["bahdanau-2015"] = "bahdanau-2015"

    @torch.no_grad()
    def initialise(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        _draw(model, std=0.01)
        for module in model.modules():
            if isinstance(module, Score):
                _draw(module, std=0.001)
            if isinstance(module, AdditiveScore | ConcatScore):
                module.reduction.weight.zero_()  # v_a
            if isinstance(module, Cell):
                _make_orthogonal(module)
        _empty_padding(model)


class XavierInitConfig(Choice):
    """Keep the variance of what goes through a layer, there and back (Glorot & Bengio 2010).

    Matrices are drawn from +-sqrt(6 / (fan_in + fan_out)) and biases are zero; tables of words stay
    as they were made. Transformers normalised after their sublayers learn better from here.
    """

    kind: Literal["xavier"] = "xavier"

    @torch.no_grad()
    def initialise(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        for name, weight in _weights(model, but=nn.Embedding):
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
            elif "bias" in name:
                weight.zero_()


class NormalInitConfig(Choice):
    """Draw every weight from a normal distribution, biases being zero.

    The spread is 0.02 in GPT and BERT (Radford et al. 2018; Devlin et al. 2019).
    """

    kind: Literal["normal"] = "normal"
    std: PositiveFloat = 0.02
    """The standard deviation."""

    @torch.no_grad()
    def initialise(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        _draw(model, std=self.std)
        _empty_padding(model)


InitConfig = Annotated[
    DefaultInitConfig
    | UniformInitConfig
    | BahdanauInitConfig
    | XavierInitConfig
    | NormalInitConfig,
    Field(discriminator="kind"),
]


def _draw(model: nn.Module, *, std: float) -> None:
    for name, weight in _weights(model):
        if "bias" in name:
            weight.zero_()
        else:
            weight.normal_(std=std)


def _make_orthogonal(cell: Cell) -> None:
    """Turn the matrices by which a state meets itself, one for each gate, into rotations."""
    for name, weight in cell.named_parameters():
        if weight.dim() == 2 and any(each in name for each in _RECURRENT):
            for square in weight.split(weight.size(1)):
                nn.init.orthogonal_(square)


def _weights(
    model: nn.Module, *, but: type[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Parameter]]:
    """Find the weights of the layers of torch, with the name each has in its layer."""
    # At zero a gate sends words to its experts evenly: a part of what it is.
    gates = [module for module in model.modules() if isinstance(module, NoisyTopGate)]
    left = {layer for gate in gates for layer in gate.modules()}
    for layer in model.modules():
        if (
            isinstance(layer, _LAYERS)
            and layer not in left
            and not (but and isinstance(layer, but))
        ):
            yield from layer.named_parameters()


def _empty_padding(model: nn.Module) -> None:
    for table in model.modules():
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:
            table.weight[table.padding_idx].zero_()
