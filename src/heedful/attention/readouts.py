"""Readouts: from attention weights and values to the context."""

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import ModuleConfig
from heedful.shapes import Context, Float, Queries, Values, Weights


class Readout(nn.Module, ABC):
    """Base of all readouts."""

    is_per_position = False
    """Whether the context has one vector per source position: (*B, T, S, V)."""

    @abstractmethod
    def forward(
        self, weights: Weights, values: Values, queries: Queries | None = None
    ) -> Context | Float[Tensor, "*B T S V"]:
        """Return the context of each query."""


class WeightedSumReadout(Readout):
    """sum_s weights_s values_s."""

    @override
    def forward(self, weights: Weights, values: Values, queries: Queries | None = None) -> Context:
        return weights @ values


class WeightedSumReadoutConfig(ModuleConfig):
    """Weighted sum of the values."""

    module_class = WeightedSumReadout
    type: Literal["weighted-sum"] = "weighted-sum"


class ArgmaxReadout(Readout):
    """The value of the largest weight, zeros if all are zero; no gradient reaches the weights."""

    @override
    def forward(self, weights: Weights, values: Values, queries: Queries | None = None) -> Context:
        max_weight, positions = weights.max(dim=-1, keepdim=True)  # (*B, T, 1)
        chosen = values.gather(-2, positions.expand(*positions.shape[:-1], values.size(-1)))
        return torch.where(max_weight > 0, chosen, 0 * max_weight.detach())  # NaN stays NaN


class ArgmaxReadoutConfig(ModuleConfig):
    """The value with the largest weight."""

    module_class = ArgmaxReadout
    type: Literal["argmax"] = "argmax"


class GatedReadout(Readout):
    """beta * inner, beta = sigmoid(w . q + b), a scalar  (Xu et al. 2015, section 4.2.1)."""

    def __init__(self, inner: Readout, *, query_size: int) -> None:
        super().__init__()
        self.inner = inner
        self.gate = nn.Linear(query_size, 1)

    @override
    def forward(self, weights: Weights, values: Values, queries: Queries | None = None) -> Context:
        assert queries is not None, "a gated readout needs the queries"
        return self.gate(queries).sigmoid() * self.inner(weights, values, queries)


class GatedReadoutConfig(ModuleConfig):
    """Context scaled by a gate that is computed from the query (Xu et al. 2015)."""

    module_class = GatedReadout
    type: Literal["gated"] = "gated"
    inner: WeightedSumReadoutConfig | ArgmaxReadoutConfig = Field(
        default=WeightedSumReadoutConfig(), discriminator="type"
    )
    """The readout whose context is scaled."""


class PerPositionReadout(Readout):
    """All values, for an output head that mixes predictions of the positions (Wu et al. 2018)."""

    is_per_position = True

    @override
    def forward(
        self, weights: Weights, values: Values, queries: Queries | None = None
    ) -> Float[Tensor, "*B T S V"]:
        return values.unsqueeze(-3).expand(*weights.shape, values.size(-1))


class PerPositionReadoutConfig(ModuleConfig):
    """All values, for an output head that mixes the predictions of positions (Wu et al. 2018)."""

    module_class = PerPositionReadout
    type: Literal["per-position"] = "per-position"


ReadoutConfig = Annotated[
    WeightedSumReadoutConfig | ArgmaxReadoutConfig | GatedReadoutConfig | PerPositionReadoutConfig,
    Field(discriminator="type"),
]
