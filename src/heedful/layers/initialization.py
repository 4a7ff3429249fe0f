"""Initialization of the parameters of a whole model, once it is built.

It covers torch's own layers. What a module initializes by a rule of its own, such as a learned
temperature, a gain or the gate of experts, is not changed; padding embeddings stay zero.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import nn
from typing_extensions import override

from heedful.attention.additive_scores import AdditiveScore, ConcatScore
from heedful.attention.scores import ScoreFunction
from heedful.config import BaseConfig
from heedful.layers.expert_gates import NoisyTopKGate
from heedful.layers.rnn_cells import LSTMCell, RecurrentCell

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.RNNBase)
_RECURRENT_NAMES = ("weight_hh", "hidden_to_", "context_to_")  # parameters that multiply a state


class InitConfigBase(BaseConfig):
    """Initial values of the parameters."""

    @torch.no_grad()
    def initialize(self, model: nn.Module) -> None:
        """Initialize the parameters of a model in place."""
        self.draw_parameters(model)
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()
            if isinstance(module, LSTMCell) and self.draws_biases:
                module.add_forget_bias()

    @property
    def draws_biases(self) -> bool:
        """Whether `draw_parameters` sets the biases of recurrent cells anew."""
        return True

    def draw_parameters(self, model: nn.Module) -> None:
        """Set the parameters of torch's layers; by default they are kept."""


class DefaultInitConfig(InitConfigBase):
    """Keep the values that each module chose when it was built."""

    type: Literal["default"] = "default"

    @property
    @override
    def draws_biases(self) -> bool:
        return False


class UniformInitConfig(InitConfigBase):
    """Draw each parameter uniformly from -bound to bound."""

    type: Literal["uniform"] = "uniform"
    bound: PositiveFloat = 0.1
    """Largest absolute value: 0.1 in Luong et al. (2015), 0.08 in Sutskever et al. (2014), 0.04 in
    Wu et al. (2016, GNMT)."""

    @override
    def draw_parameters(self, model: nn.Module) -> None:
        for _, parameter in _named_parameters(model):
            parameter.uniform_(-self.bound, self.bound)


class BahdanauInitConfig(InitConfigBase):
    """Initialize as Bahdanau et al. (2015, section B.1); attention is uniform at first."""

    type: Literal["bahdanau-2015"] = "bahdanau-2015"

    @override
    def draw_parameters(self, model: nn.Module) -> None:
        _init_normal(model, std=0.01)
        for module in model.modules():
            if isinstance(module, ScoreFunction):
                _init_normal(module, std=0.001)
            if isinstance(module, AdditiveScore | ConcatScore):
                module.score_vector.weight.zero_()  # v_a
            if isinstance(module, RecurrentCell):
                for matrix in recurrent_matrices(module):
                    nn.init.orthogonal_(matrix)


class XavierInitConfig(InitConfigBase):
    """Xavier initialization, which keeps the variance of activations (Glorot & Bengio 2010).

    Matrices are drawn from +-sqrt(6 / (fan_in + fan_out)), biases are zero, embeddings stay as they
    were built. Transformers with post-norm train better with it.
    """

    type: Literal["xavier"] = "xavier"

    @override
    def draw_parameters(self, model: nn.Module) -> None:
        for name, parameter in _named_parameters(model, exclude=nn.Embedding):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif "bias" in name:
                parameter.zero_()


class NormalInitConfig(InitConfigBase):
    """Draw each parameter from a normal distribution; biases are zero."""

    type: Literal["normal"] = "normal"
    std: PositiveFloat = 0.02
    """Standard deviation; 0.02 in GPT and BERT (Radford et al. 2018; Devlin et al. 2019)."""

    @override
    def draw_parameters(self, model: nn.Module) -> None:
        _init_normal(model, std=self.std)


InitConfig = Annotated[
    DefaultInitConfig
    | UniformInitConfig
    | BahdanauInitConfig
    | XavierInitConfig
    | NormalInitConfig,
    Field(discriminator="type"),
]


def recurrent_matrices(cell: RecurrentCell) -> Iterator[torch.Tensor]:
    """Yield the matrices that multiply a state of the cell, one for each gate."""
    for name, parameter in cell.named_parameters():
        if parameter.dim() == 2 and any(part in name for part in _RECURRENT_NAMES):
            yield from parameter.split(cell.cell_state_size or parameter.size(1))


def _init_normal(model: nn.Module, *, std: float) -> None:
    for name, parameter in _named_parameters(model):
        if "bias" in name:
            parameter.zero_()
        else:
            parameter.normal_(std=std)


def _named_parameters(
    model: nn.Module, *, exclude: type[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of torch's layers, each with its name in the layer."""
    # A gate of zeros routes tokens evenly to its experts: it is initialized by its own rule.
    gates = [module for module in model.modules() if isinstance(module, NoisyTopKGate)]
    gate_layers = {layer for gate in gates for layer in gate.modules()}
    for layer in model.modules():
        is_excluded = layer in gate_layers or (exclude and isinstance(layer, exclude))
        if isinstance(layer, _LAYERS) and not is_excluded:
            yield from layer.named_parameters()
