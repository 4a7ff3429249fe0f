"""Sparsely gated mixtures of experts: a gate routes each token to a few (Shazeer et al. 2017).

Invariants: padding is not routed, adds nothing to the losses and gives zeros; tokens have no
influence on one another's outputs, unless experts have a capacity.
"""

import math
from typing import Literal, NamedTuple

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import softplus
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.layers.feed_forward import (
    ACTIVATIONS,
    Activation,
    FeedForwardOutput,
    PositionwiseLayer,
)
from heedful.shapes import Float, HiddenStates, Int, Scalar, TargetMask

States = Float[Tensor, "*B T D"]

NOISE_FLOOR = 1e-2
"""Added to the standard deviation of the noise, as in the authors' code. The paper's formula has no
such term, and would divide by zero where the softplus vanishes."""


class GatingOutput(NamedTuple):
    """Experts of each token."""

    expert_indices: Int[Tensor, "W C"]  # best first
    gate_weights: Float[Tensor, "W C"]  # of the experts' outputs
    selection_probs: Float[Tensor, "W X"]  # of each expert, if its own noise were sampled again


class NoisyTopKGate(nn.Module):
    """softmax(keep the k highest of H), H_i = (W_g x)_i + N(0, 1) softplus((W_noise x)_i).

    (Shazeer et al. 2017, equations 3 to 5.) Noise is sampled in training only. All parameters start
    at zero, so that the noise alone decides at first, and spreads tokens evenly. The selection
    probability of expert i is Phi(((W_g x)_i - the k-th highest H other than H_i) / noise_std_i)
    (equation 9); without noise it is one or zero.
    """

    def __init__(self, input_size: int, *, num_experts: int, num_experts_per_token: int) -> None:
        super().__init__()
        assert 0 < num_experts_per_token <= num_experts, (num_experts_per_token, num_experts)
        self.num_experts_per_token = num_experts_per_token
        self.score = nn.Linear(input_size, num_experts, bias=False)
        self.noise = nn.Linear(input_size, num_experts, bias=False)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.noise.weight)

    def forward(self, tokens: Float[Tensor, "W D"]) -> GatingOutput:
        """Route each token to its experts."""
        clean = self.score(tokens)
        noise_std = softplus(self.noise(tokens)) + NOISE_FLOOR
        noisy = clean + torch.randn_like(clean) * noise_std if self.training else clean
        best, indices = noisy.topk(self.num_experts_per_token, dim=-1)
        is_selected = torch.zeros_like(noisy, dtype=torch.bool).scatter(-1, indices, True)
        gate_weights = best.softmax(dim=-1)
        if not self.training or self.num_experts_per_token == noisy.size(-1):
            return GatingOutput(indices, gate_weights, _upcast(is_selected.to(noisy.dtype)))
        # A selected expert must beat the best of the others, any other the last selected one.
        next_best = noisy.masked_fill(is_selected, -torch.inf).amax(dim=-1, keepdim=True)
        threshold = torch.where(is_selected, next_best, best[:, -1:])
        selection_probs = torch.special.ndtr(_upcast(clean - threshold) / _upcast(noise_std))
        return GatingOutput(indices, gate_weights, selection_probs)


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
    the number of targets, so each is multiplied by the number of tokens.

    With a capacity an expert takes at most ceil(factor * tokens * k / experts) tokens, the first
    ones of the batch; it adds nothing for the others, and their remaining gate weights are not
    rescaled. This holds in training alone: at inference outputs do not depend on the batch.
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
        capacity_factor: float | None = None,
        activation: Activation = "relu",
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.gate = NoisyTopKGate(
            size, num_experts=num_experts, num_experts_per_token=num_experts_per_token
        )
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(size, intermediate_size, bias=bias),
                ACTIVATIONS[activation](),
                nn.Linear(intermediate_size, size, bias=bias),
            )
            for _ in range(num_experts)
        )
        self.importance_weight = importance_weight
        self.load_weight = load_weight
        self.capacity_factor = capacity_factor

    def capacity(self, num_tokens: int) -> int | None:
        """Return the capacity of an expert in a batch of tokens; None for no limit."""
        if self.capacity_factor is None or not self.training:
            return None
        even_share = num_tokens * self.gate.num_experts_per_token / len(self.experts)
        return math.ceil(self.capacity_factor * even_share)

    def forward(self, inputs: States, mask: TargetMask) -> MoEOutput:
        """Process the tokens where the mask is True."""
        tokens = inputs[mask]  # (W, D)
        gating = self.gate(tokens)
        expert_indices = gating.expert_indices.flatten()  # C entries for each token
        ones = torch.ones_like(expert_indices)
        counts = ones.new_zeros(len(self.experts)).index_add(0, expert_indices, ones)
        sizes = _sizes(counts, len(expert_indices))
        capacity = self.capacity(len(tokens))
        by_expert = expert_indices.argsort(stable=True).split(sizes)
        assignments = [entries[:capacity] for entries in by_expert]
        # Run each expert on all of its tokens at once, and sum the weighted outputs.
        entries = torch.cat(assignments)
        token_indices = entries // gating.expert_indices.size(-1)
        parts = tokens[token_indices].split([len(part) for part in assignments])
        pairs = zip(self.experts, parts, strict=True)
        outputs = torch.cat([expert(part) for expert, part in pairs])
        weighted = outputs * gating.gate_weights.flatten()[entries].unsqueeze(-1)
        combined = weighted.new_zeros(tokens.shape).index_add(0, token_indices, weighted)
        padded = torch.zeros_like(inputs)
        padded[mask] = combined.to(inputs.dtype)
        return MoEOutput(
            padded,
            self._balance_losses(gating),
            counts / counts.sum().clamp(min=1),
            counts.new_tensor(len(expert_indices)),
            counts.new_tensor(len(expert_indices) - len(entries)),
        )

    def _balance_losses(self, gating: GatingOutput) -> dict[str, Scalar]:
        num_tokens = len(gating.expert_indices)
        zeros = torch.zeros_like(gating.selection_probs)
        gate_weights = gating.gate_weights.to(zeros.dtype)
        importance = zeros.scatter(-1, gating.expert_indices, gate_weights).sum(dim=0)
        load = gating.selection_probs.sum(dim=0)
        return {
            "expert-importance": self.importance_weight * cv_squared(importance) * num_tokens,
            "expert-load": self.load_weight * cv_squared(load) * num_tokens,
        }


def cv_squared(values: Float[Tensor, "X"]) -> Scalar:
    """Return the squared coefficient of variation, variance / mean^2."""
    # The epsilon of the authors' code: without tokens the result is zero.
    return values.var(correction=0) / (values.mean().square() + 1e-10)


def _sizes(counts: Int[Tensor, "X"], total: int) -> list[int]:
    """Return the counts as integers; on the meta device, which has none, an even split."""
    if not counts.is_meta:
        return counts.tolist()
    share, rest = divmod(total, len(counts))
    return [share + 1] * rest + [share] * (len(counts) - rest)


def _upcast(values: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    # Half precision cannot sum over the tokens of a batch.
    return values.to(torch.promote_types(values.dtype, torch.float))


class MoESublayer(nn.Module):
    """x + dropout(sigmoid(experts(x))), between recurrent layers (Shazeer et al. 2017, C.1)."""

    def __init__(self, experts: MixtureOfExperts, *, dropout: float) -> None:
        super().__init__()
        self.experts = experts
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: States, mask: TargetMask) -> MoEOutput:
        """Add the outputs of the experts to the inputs."""
        output = self.experts(inputs, mask)
        return output._replace(outputs=inputs + self.dropout(output.outputs.sigmoid()))


class MoEFeedForward(PositionwiseLayer):
    """Experts as the feed-forward sublayer of a Transformer (Liu et al. 2018)."""

    def __init__(self, experts: MixtureOfExperts) -> None:
        super().__init__()
        self.experts = experts

    @override
    def forward(self, inputs: HiddenStates, mask: TargetMask) -> FeedForwardOutput:
        output: MoEOutput = self.experts(inputs, mask)
        return FeedForwardOutput(output.outputs, output.auxiliary_losses)


class ExpertsConfigBase(BaseConfig):
    """A mixture of experts (Shazeer et al. 2017)."""

    num_experts: PositiveInt = 32
    """Number of experts."""
    num_experts_per_token: PositiveInt = 4
    """Experts that process each token."""
    importance_weight: NonNegativeFloat = 0.01
    """Weight of the loss on uneven gate weights; the paper's for translation."""
    load_weight: NonNegativeFloat = 0.01
    """Weight of the loss on uneven numbers of tokens; the paper's for translation."""

    @model_validator(mode="after")
    def _check_num_experts(self) -> "ExpertsConfigBase":
        if self.num_experts_per_token > self.num_experts:
            raise ValueError(
                f"num_experts_per_token is {self.num_experts_per_token}, but num_experts is "
                f"{self.num_experts}"
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
        """Number of layers that are needed for experts to stand between them."""
        return max(self.after_layers or (1,)) + 1

    def is_after(self, layer: int) -> bool:
        """Return whether experts follow this layer."""
        return self.after_layers is None or layer in self.after_layers

    def build(self, *, size: int, dropout: float) -> MoESublayer:
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
