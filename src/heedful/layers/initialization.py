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

from heedful.attention import AdditiveScore, ConcatScore, ScoreFunction
from heedful.config import BaseConfig
from heedful.layers.mixture_of_experts import NoisyTopKGate
from heedful.layers.rnn_cells import RecurrentCell

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.RNNBase)
_RECURRENT_NAMES = ("weight_hh", "hidden_to_", "context_to_")  # what meets a state, by name


class DefaultInitConfig(BaseConfig):
    """Leave every weight as the part it belongs to made it."""

    type: Literal["default"] = "default"

    def initialize(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""


class UniformInitConfig(BaseConfig):
    """Draw every weight evenly from -range to range.

    The range is 0.1 in Luong et al. (2015), 0.08 in Sutskever et al. (2014) and 0.04 in Wu et al.
    (2016, GNMT).
    """

    type: Literal["uniform"] = "uniform"
    bound: PositiveFloat = 0.1
    """The largest value that can be drawn."""

    @torch.no_grad()
    def initialize(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        for _, weight in _named_weights(model):
            weight.uniform_(-self.bound, self.bound)
        _zero_padding_rows(model)


class BahdanauInitConfig(BaseConfig):
    """Begin as Bahdanau et al. (2015, section B.1) did: attention is even at first."""

    type: Literal["bahdanau-2015"] = "bahdanau-2015"

    @torch.no_grad()
    def initialize(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        _init_normal(model, std=0.01)
        for module in model.modules():
            if isinstance(module, ScoreFunction):
                _init_normal(module, std=0.001)
            if isinstance(module, AdditiveScore | ConcatScore):
                module.score_vector.weight.zero_()  # v_a
            if isinstance(module, RecurrentCell):
                _make_orthogonal(module)
        _zero_padding_rows(model)


class XavierInitConfig(BaseConfig):
    """Keep the variance of what goes through a layer, there and back (Glorot & Bengio 2010).

    Matrices are drawn from +-sqrt(6 / (fan_in + fan_out)) and biases are zero; tables of words stay
    as they were made. Transformers normalised after their sublayers learn better from here.
    """

    type: Literal["xavier"] = "xavier"

    @torch.no_grad()
    def initialize(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        for name, weight in _named_weights(model, exclude=nn.Embedding):
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
            elif "bias" in name:
                weight.zero_()


class NormalInitConfig(BaseConfig):
    """Draw every weight from a normal distribution, biases being zero.

    The spread is 0.02 in GPT and BERT (Radford et al. 2018; Devlin et al. 2019).
    """

    type: Literal["normal"] = "normal"
    std: PositiveFloat = 0.02
    """The standard deviation."""

    @torch.no_grad()
    def initialize(self, model: nn.Module) -> None:
        """Give the weights of a model their first values."""
        _init_normal(model, std=self.std)
        _zero_padding_rows(model)


InitConfig = Annotated[
    DefaultInitConfig
    | UniformInitConfig
    | BahdanauInitConfig
    | XavierInitConfig
    | NormalInitConfig,
    Field(discriminator="type"),
]


def _init_normal(model: nn.Module, *, std: float) -> None:
    for name, weight in _named_weights(model):
        if "bias" in name:
            weight.zero_()
        else:
            weight.normal_(std=std)


def _make_orthogonal(cell: RecurrentCell) -> None:
    """Turn the matrices by which a state meets itself, one for each gate, into rotations."""
    for name, weight in cell.named_parameters():
        if weight.dim() == 2 and any(each in name for each in _RECURRENT_NAMES):
            for square in weight.split(weight.size(1)):
                nn.init.orthogonal_(square)


def _named_weights(
    model: nn.Module, *, exclude: type[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Parameter]]:
    """Find the weights of the layers of torch, with the name each has in its layer."""
    # At zero a gate sends words to its experts evenly: a part of what it is.
    gates = [module for module in model.modules() if isinstance(module, NoisyTopKGate)]
    left = {layer for gate in gates for layer in gate.modules()}
    for layer in model.modules():
        if (
            isinstance(layer, _LAYERS)
            and layer not in left
            and not (exclude and isinstance(layer, exclude))
        ):
            yield from layer.named_parameters()


def _zero_padding_rows(model: nn.Module) -> None:
    for table in model.modules():
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:
            table.weight[table.padding_idx].zero_()
