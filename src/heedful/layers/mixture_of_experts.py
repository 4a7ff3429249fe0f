"""Sparsely gated mixtures of experts: a gate routes each token to a few (Shazeer et al. 2017).

Invariants: padding is not routed, adds nothing to the losses and gives zeros; tokens have no
influence on one another's outputs, except in training if experts have a capacity or are strictly
balanced.
"""

import math
from typing import Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.masks import check_padding_mask
from heedful.config import BaseConfig
from heedful.layers.expert_gates import Gating, Routing, build_gate
from heedful.layers.sublayers import ACTIVATIONS, Activation, FeedForwardOutput, PositionwiseLayer
from heedful.shapes import AnyMask, Float, HiddenStates, Int, Scalar

States = Float[Tensor, "*B T D"]


class MoEOutput(NamedTuple):
    """Output of a mixture of experts, and how tokens were routed."""

    outputs: States  # zero in padding
    auxiliary_losses: dict[str, Scalar]
    expert_load: Float[Tensor, "X"]  # fraction of all routed tokens
    num_routed: Int[Tensor, ""]  # pairs of token and expert
    num_dropped: Int[Tensor, ""]  # those for which the expert was full


class MixtureOfExperts(nn.Module):
    """sum over the selected i of G(x)_i E_i(x), E_i(x) = V_i a(U_i x)  (Shazeer et al. 2017).

    The paper's experts have a = max(0, .) and no biases.

    Two losses keep tokens from going to a few experts: weight * CV^2 of the sums over tokens of
    G(x)_i (importance, equation 7) and of the selection probabilities (load, equation 11), where
    CV^2 = variance / mean^2 with the population variance, as in the authors' code. The paper adds
    CV^2 once per batch to a mean over tokens. Here losses are sums, which the trainer divides by
    the number of targets, so each is multiplied by the number of tokens. Gates with thresholds add
    a third loss, which trains only the thresholds.

    With a capacity an expert takes at most ceil(factor * tokens * k / experts) tokens, the first
    ones of the batch; it adds nothing for the others, and their remaining gate weights are not
    rescaled. This is only in training: at inference outputs do not depend on the batch.
    """

    def __init__(
        self,
        size: int,
        *,
        intermediate_size: int,
        num_experts: int,
        num_experts_per_token: int,
        importance_weight: float,
        load_weight: float,
        gating: Gating = "noisy-top-k",
        num_groups: int | None = None,
        num_groups_per_token: int = 2,
        capacity_factor: float | None = None,
        activation: Activation = "relu",
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.gate = build_gate(
            size,
            num_experts,
            num_experts_per_token,
            gating=gating,
            num_groups=num_groups,
            num_groups_per_token=num_groups_per_token,
        )
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(size, intermediate_size, bias=bias),
                ACTIVATIONS[activation](),
                nn.Linear(intermediate_size, size, bias=bias),
            )
            for _ in range(num_experts)
        )
        self.num_experts_per_token = num_experts_per_token
        self.importance_weight = importance_weight
        self.load_weight = load_weight
        self.capacity_factor = capacity_factor

    def capacity(self, num_tokens: int) -> int | None:
        """Return the capacity of an expert in a batch of tokens; None for no limit."""
        if self.capacity_factor is None or not self.training:
            return None
        even_share = num_tokens * self.num_experts_per_token / len(self.experts)
        return math.ceil(self.capacity_factor * even_share)

    def forward(self, inputs: States, mask: AnyMask = None) -> MoEOutput:
        """Process the tokens where the mask is True."""
        mask = check_padding_mask(mask, inputs)
        tokens = inputs[mask]  # (W, D)
        routing: Routing = self.gate(tokens)
        capacity = self.capacity(len(tokens))
        assignments = [pairs[:capacity] for pairs in routing.by_expert()]
        # Run each expert on all of its tokens at once, and sum the weighted outputs.
        entries = torch.cat(assignments)
        token_indices = routing.token_indices[entries]
        parts = tokens[token_indices].split([len(part) for part in assignments])
        pairs = zip(self.experts, parts, strict=True)
        outputs = torch.cat([expert(part) for expert, part in pairs])
        weighted = outputs * routing.gate_weights[entries].unsqueeze(-1)
        combined = weighted.new_zeros(tokens.shape).index_add(0, token_indices, weighted)
        padded = torch.zeros_like(inputs)
        padded[mask] = combined.to(inputs.dtype)
        counts, num_routed = routing.counts, len(routing.expert_indices)
        return MoEOutput(
            padded,
            self._balance_losses(routing, len(tokens)),
            counts / counts.sum().clamp(min=1),
            counts.new_tensor(num_routed),
            counts.new_tensor(num_routed - len(entries)),
        )

    def _balance_losses(self, routing: Routing, num_tokens: int) -> dict[str, Scalar]:
        gate_weights = routing.load.new_zeros(num_tokens, len(routing.load))
        index = (routing.token_indices, routing.expert_indices)
        gate_weights = gate_weights.index_put(index, routing.gate_weights.to(gate_weights.dtype))
        importance = cv_squared(gate_weights.sum(dim=0))
        losses = {
            "expert-importance": self.importance_weight * importance * num_tokens,
            "expert-load": self.load_weight * cv_squared(routing.load) * num_tokens,
        }
        if routing.threshold_loss is not None:
            losses["expert-threshold"] = routing.threshold_loss
        return losses


def cv_squared(values: Float[Tensor, "X"]) -> Scalar:
    """Return the squared coefficient of variation, variance / mean^2."""
    # The epsilon of the authors' code: without tokens the result is zero.
    return values.var(correction=0) / (values.mean().square() + 1e-10)


class MoESublayer(nn.Module):
    """x + dropout(sigmoid(experts(x))), between recurrent layers (Shazeer et al. 2017, C.1)."""

    def __init__(self, experts: MixtureOfExperts, *, dropout: float) -> None:
        super().__init__()
        self.experts = experts
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: States, mask: AnyMask = None) -> MoEOutput:
        """Add the outputs of the experts to the inputs; without a mask none is padding."""
        output = self.experts(inputs, mask)
        return output._replace(outputs=inputs + self.dropout(output.outputs.sigmoid()))


class MoEFeedForward(PositionwiseLayer):
    """Experts as the feed-forward sublayer of a Transformer (Liu et al. 2018)."""

    def __init__(self, experts: MixtureOfExperts) -> None:
        super().__init__()
        self.experts = experts

    @override
    def forward(self, inputs: HiddenStates, mask: AnyMask = None) -> FeedForwardOutput:
        output: MoEOutput = self.experts(inputs, mask)
        return FeedForwardOutput(output.outputs, output.auxiliary_losses)


class ExpertsConfigBase(BaseConfig):
    """A mixture of experts (Shazeer et al. 2017)."""

    num_experts: PositiveInt = Field(default=32, le=2**17)
    """Number of experts."""
    num_experts_per_token: PositiveInt = 4
    """Experts that process each token."""
    importance_weight: NonNegativeFloat = 0.01
    """Weight of the loss on uneven gate weights; the paper's for translation."""
    load_weight: NonNegativeFloat = 0.01
    """Weight of the loss on uneven numbers of tokens; the paper's for translation."""
    gating: Gating = "noisy-top-k"
    """`strictly-balanced` gives every expert as many tokens in training (appendix F)."""
    num_groups: PositiveInt | None = Field(default=None, le=1000)
    """Groups of experts: a gate selects groups, and one in each group its experts (appendix B)."""
    num_groups_per_token: PositiveInt = 2
    """Groups that process each token, if there are groups."""

    @model_validator(mode="after")
    def _check_num_experts(self) -> "ExpertsConfigBase":
        experts, selected = self.num_experts, self.num_experts_per_token
        if selected > experts:
            raise ValueError(f"num_experts_per_token is {selected}, but num_experts is {experts}")
        groups, per_token = self.num_groups or 1, self.num_groups_per_token
        is_even = experts % groups == selected % per_token == 0
        fits = per_token <= groups and selected // per_token <= experts // groups
        if self.num_groups and not (is_even and fits):
            raise ValueError(
                f"{experts} experts in {groups} groups, {selected} per token from {per_token}: "
                "groups need equal numbers of experts, and at least as many as are selected"
            )
        return self


class MoESublayerConfig(ExpertsConfigBase):
    """Experts between recurrent layers (Shazeer et al. 2017)."""

    intermediate_size: PositiveInt | None = None
    """Hidden size of an expert; by default twice the size of its input (appendix C.1)."""
    after_layers: tuple[PositiveInt, ...] | None = None
    """Layers, counted from 1, that experts follow; by default all but the top one."""

    @property
    def min_layers(self) -> int:
        """Number of layers that are needed for experts between them."""
        return max(self.after_layers or (1,)) + 1

    def build_after(
        self, layer: int, num_layers: int, *, size: int, dropout: float
    ) -> MoESublayer | None:
        """Build the experts that follow a layer, counted from 1; None where there are none."""
        if layer == num_layers or layer not in (self.after_layers or [layer]):
            return None
        options = {name: getattr(self, name) for name in ExpertsConfigBase.model_fields}
        intermediate_size = self.intermediate_size or 2 * size
        experts = MixtureOfExperts(size, intermediate_size=intermediate_size, **options)
        return MoESublayer(experts, dropout=dropout)


class MoEFeedForwardConfig(ExpertsConfigBase):
    """A mixture of experts in place of the feed-forward network (Liu et al. 2018)."""

    type: Literal["moe"] = "moe"
    num_experts_per_token: PositiveInt = 2
    """Experts that process each token."""
    intermediate_size: PositiveInt = 2048
    """Hidden size of an expert."""
    activation: Activation = "relu"
    """Activation of the hidden layer."""
    bias: bool = False
    """Add a bias in the projections of an expert."""
    capacity_factor: PositiveFloat | None = None
    """Capacity of an expert in training, as a multiple of an even share; null for no limit."""

    def build(self, *, size: int) -> PositionwiseLayer:
        return MoEFeedForward(MixtureOfExperts(size, **self.options()))
