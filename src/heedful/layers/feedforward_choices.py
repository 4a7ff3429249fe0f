"""The feed-forward sublayers, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from heedful.config import Choice
from heedful.config.choice import assuming
from heedful.layers.expert_choices import require_enough
from heedful.layers.expert_feedforward import ExpertFeedForward
from heedful.layers.experts import Experts
from heedful.layers.feedforward import Activation, FeedForward, PlaceWise


class FeedForwardConfig(Choice):
    """Change each place by a network with one hidden layer (Vaswani et al. 2017)."""

    kind: Literal["plain"] = "plain"
    hidden_size: PositiveInt = 2048
    """Width of the hidden layer; that of the paper's base model."""
    activation: Activation = "relu"
    """What bends the hidden layer."""
    gated: bool = False
    """Whether the hidden layer is multiplied by another, which nothing bends (Shazeer 2020)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of hidden values dropped in training."""
    bias: bool = True
    """Whether something is added to each product."""

    def build(self, *, size: int) -> PlaceWise:
        """Make the sublayer for places of this width."""
        return FeedForward(
            size,
            self.hidden_size,
            activation=self.activation,
            gated=self.gated,
            dropout=self.dropout,
            bias=self.bias,
        )


class ExpertFeedForwardConfig(Choice):
    """Send each place to a few of many such networks (Shazeer et al. 2017)."""

    kind: Literal["experts"] = "experts"
    num_experts: PositiveInt = 32
    """How many there are."""
    num_chosen: PositiveInt = 2
    """How many see a place."""
    hidden_size: PositiveInt = 2048
    """Width of an expert's hidden layer."""
    activation: Activation = "relu"
    """What bends the hidden layer."""
    bias: bool = False
    """Whether something is added to each product of an expert."""
    importance_weight: NonNegativeFloat = 0.01
    """What is added to the loss for uneven shares in the outcome; the paper's for translation."""
    load_weight: NonNegativeFloat = 0.01
    """What is added to the loss for uneven numbers of places; the paper's for translation."""
    capacity_factor: PositiveFloat | None = None
    """Room of an expert in training, as a multiple of an even share; if not given, no bounds."""

    @model_validator(mode="after")
    def _are_enough(self) -> ExpertFeedForwardConfig:
        require_enough(self.num_experts, self.num_chosen)
        return self

    def build(self, *, size: int) -> PlaceWise:
        """Make the sublayer for places of this width."""
        experts = Experts(
            size,
            hidden_size=self.hidden_size,
            num_experts=self.num_experts,
            num_chosen=self.num_chosen,
            importance_weight=self.importance_weight,
            load_weight=self.load_weight,
            capacity_factor=self.capacity_factor,
            activation=self.activation,
            bias=self.bias,
        )
        return ExpertFeedForward(experts)


PlaceWiseConfig = Annotated[
    FeedForwardConfig | ExpertFeedForwardConfig, Field(discriminator="kind"), assuming("plain")
]
