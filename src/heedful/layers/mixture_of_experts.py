"""Experts, as a configuration describes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import softplus

from heedful.config import BaseConfig
from heedful.layers.feed_forward import (
    ACTIVATIONS,
    Activation,
    FeedForwardOutput,
    PositionwiseLayer,
)
from heedful.shapes import Bool, Float, Int

# Experts: which few of many small networks should see a word?
#
# A gate sends every word to a few experts and mixes what they make of it, so a layer can hold far
# more weights than a word costs. Law: words have no influence on one another's outputs, unless
# experts have a capacity; padding is sent to nobody, counts for nothing and comes out as zeros.

NOISE_FLOOR = 1e-2
"""Added to the spread of the noise, in the authors' code; the paper's formula has no such term, and
would divide by nothing where the softplus vanishes."""


class GatingOutput(NamedTuple):
    """To whom words are sent."""

    expert_indices: Int[Tensor, "W C"]  # the experts of each word, best first
    gate_weights: Float[Tensor, "W C"]  # how much of the outcome is theirs
    selection_probs: Float[
        Tensor, "W X"
    ]  # of every expert to be chosen, were its own noise drawn again


class NoisyTopKGate(nn.Module):
    """softmax(keep the k highest of H), H_i = (W_g x)_i + N(0, 1) softplus((W_noise x)_i).

    (Shazeer et al. 2017, equations 3 to 5.) The noise is drawn in training only. All weights begin
    at zero, so that at first the noise alone decides, and spreads words evenly. The chance of an
    expert is Phi(((W_g x)_i - the k-th highest H but for H_i) / spread_i) (equation 9); without
    noise it is one or zero.
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
        """Send each word to its experts."""
        clean = self.score(tokens)
        noise_std = softplus(self.noise(tokens)) + NOISE_FLOOR
        noisy = clean + torch.randn_like(clean) * noise_std if self.training else clean
        best, chosen = noisy.topk(self.num_experts_per_token, dim=-1)
        is_chosen = torch.zeros_like(noisy, dtype=torch.bool).scatter(-1, chosen, True)
        shares = best.softmax(dim=-1)
        if not self.training or self.num_experts_per_token == noisy.size(-1):
            return GatingOutput(chosen, shares, _upcast(is_chosen.to(noisy.dtype)))
        # To be among the best, a chosen one must beat the first that is not, and others the last
        # that is.
        next_best = noisy.masked_fill(is_chosen, -torch.inf).amax(dim=-1, keepdim=True)
        threshold = torch.where(is_chosen, next_best, best[:, -1:])
        return GatingOutput(
            chosen, shares, torch.special.ndtr(_upcast(clean - threshold) / _upcast(noise_std))
        )


class MoEOutput(NamedTuple):
    """What experts made of words, and how evenly the words were spread among them."""

    outputs: Float[Tensor, "*B S D"]  # zero where there is no word
    auxiliary_losses: dict[str, Float[Tensor, ""]]  # by name, to be added to the loss
    expert_load: Float[Tensor, "X"]  # the share of each expert in all that was sent to them
    num_routed: Int[Tensor, ""]  # to how many experts words were sent, all words together
    num_dropped: Int[Tensor, ""]  # of these, how often the expert was full


class MixtureOfExperts(nn.Module):
    """sum over the chosen i of G(x)_i E_i(x), E_i(x) = V_i a(U_i x)  (Shazeer et al. 2017).

    The paper's experts have a = max(0, .) and no biases.

    Two penalties keep a few experts from getting all the words: weight * CV^2 of the sums over
    words of G(x)_i (importance, equation 7) and of the chances (load, equation 11), with
    CV^2 = variance / mean^2, the variance that of the whole population, as in the authors' code.

    The paper adds CV^2 once for a batch, whose error is a mean over words. Here penalties are sums
    like the error, for a learner to divide, so each is multiplied by the number of words.

    With a capacity an expert takes at most ceil(factor * words * k / experts) words, those that
    come first in the batch; it adds nothing for the others, and the shares of those who see them
    stay what they were. Words of one batch then compete for places, though none ever loses its
    place to a later one. That is so in training alone, unless `limits_capacity_in_eval`: who asks a
    trained model gets the same answer in any company.
    """

    def __init__(
        self,
        size: int,
        *,
        hidden_size: int,
        num_experts: int,
        num_experts_per_token: int,
        importance_weight: float,
        load_weight: float,
        capacity_factor: float | None = None,
        limits_capacity_in_eval: bool = False,
        activation: Activation = "relu",
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.gate = NoisyTopKGate(
            size, num_experts=num_experts, num_experts_per_token=num_experts_per_token
        )
        self.experts = nn.ModuleList(
            _expert(size, hidden_size, activation=activation, bias=bias) for _ in range(num_experts)
        )
        self.importance_weight = importance_weight
        self.load_weight = load_weight
        self.capacity_factor = capacity_factor
        self.limits_capacity_in_eval = limits_capacity_in_eval

    def capacity(self, num_tokens: int) -> int | None:
        """How many of so many words an expert takes; None for all that it is sent."""
        if self.capacity_factor is None or not (self.training or self.limits_capacity_in_eval):
            return None
        evenly = num_tokens * self.gate.num_experts_per_token / len(self.experts)
        return math.ceil(self.capacity_factor * evenly)

    def forward(self, inputs: Float[Tensor, "*B S D"], mask: Bool[Tensor, "*B S"]) -> MoEOutput:
        """Let experts see the words where the mask is True."""
        words = inputs[mask]  # (W, D)
        gated = self.gate(words)
        counts = _tokens_per_expert(gated.expert_indices, len(self.experts))
        taken = self._assign_tokens(gated.expert_indices, counts)
        outputs = torch.zeros_like(inputs)
        outputs[mask] = self._combine_experts(words, gated.gate_weights, taken).to(inputs.dtype)
        loads = counts / counts.sum().clamp(min=1)
        num_taken = sum(map(len, taken))
        dropped = counts.new_tensor(gated.expert_indices.numel() - num_taken)
        num_routed = counts.new_tensor(gated.expert_indices.numel())
        return MoEOutput(outputs, self._balance_losses(gated), loads, num_routed, dropped)

    def _assign_tokens(
        self, chosen: Int[Tensor, "W C"], counts: Int[Tensor, "X"]
    ) -> list[Int[Tensor, "_"]]:
        """Say what each expert takes: the places in `chosen`, read row by row, of what it gets."""
        order = chosen.flatten().argsort(stable=True)
        limit = self.capacity(len(chosen))
        return [part[:limit] for part in order.split(_sizes(counts, chosen.numel()))]

    def _combine_experts(
        self,
        tokens: Float[Tensor, "W D"],
        gate_weights: Float[Tensor, "W C"],
        taken: Sequence[Int[Tensor, "_"]],
    ) -> Float[Tensor, "W D"]:
        """Give each expert all of its words at once, and add up what comes back."""
        places = torch.cat(list(taken))
        num_routed = places // gate_weights.size(-1)  # which word
        parts = tokens[num_routed].split([len(each) for each in taken])
        experts = cast(Iterable[nn.Module], self.experts)
        expert_outputs = [expert(part) for expert, part in zip(experts, parts, strict=True)]
        weighted_outputs = torch.cat(expert_outputs) * gate_weights.flatten()[places].unsqueeze(-1)
        return weighted_outputs.new_zeros(tokens.shape).index_add(0, num_routed, weighted_outputs)

    def _balance_losses(self, gated: GatingOutput) -> dict[str, Float[Tensor, ""]]:
        num_words = len(gated.expert_indices)
        nothing = torch.zeros_like(gated.selection_probs)
        weighted_outputs = nothing.scatter(
            -1, gated.expert_indices, gated.gate_weights.to(nothing.dtype)
        )
        importance, load = (
            cv_squared(each.sum(dim=0)) for each in (weighted_outputs, gated.selection_probs)
        )
        return {
            "expert-importance": self.importance_weight * importance * num_words,
            "expert-load": self.load_weight * load * num_words,
        }


class MoESublayer(nn.Module):
    """x + dropout(sigmoid(experts(x))): experts between recurrent layers.

    (Shazeer et al. 2017, appendix C.1.)
    """

    def __init__(self, experts: MixtureOfExperts, *, dropout: float) -> None:
        super().__init__()
        self.experts = experts
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Float[Tensor, "*B S D"], mask: Bool[Tensor, "*B S"]) -> MoEOutput:
        """Add what experts make of the words to the words."""
        mixed = self.experts(inputs, mask)
        return mixed._replace(outputs=inputs + self.dropout(mixed.outputs.sigmoid()))


def cv_squared(values: Float[Tensor, "X"]) -> Float[Tensor, ""]:
    """Squared coefficient of variation, variance / mean^2: zero if all are alike."""
    # A small number, that of the authors' code: no words are spread evenly.
    return values.var(correction=0) / (values.mean().square() + 1e-10)


def _expert(size: int, hidden_size: int, *, activation: Activation, bias: bool) -> nn.Module:
    """One hidden layer; without biases, as the paper counts its weights."""
    input_projection, output_projection = (
        nn.Linear(size, hidden_size, bias=bias),
        nn.Linear(hidden_size, size, bias=bias),
    )
    return nn.Sequential(input_projection, ACTIVATIONS[activation](), output_projection)


def _tokens_per_expert(chosen: Int[Tensor, "W C"], num_experts: int) -> Int[Tensor, "X"]:
    """How many words each expert is sent."""
    sends = chosen.flatten()
    return sends.new_zeros(num_experts).index_add(0, sends, torch.ones_like(sends))


def _sizes(counts: Int[Tensor, "X"], total: int) -> list[int]:
    """The counts as plain numbers; where tensors hold none, as if words were spread evenly."""
    if not counts.is_meta:
        return counts.tolist()
    each, more = divmod(total, len(counts))
    return [each + 1] * more + [each] * (len(counts) - more)


def _upcast(numbers: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Half precision cannot add up the words of a batch."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))


class MoESublayerConfig(BaseConfig):
    """Send each word to a few of many small networks, between layers (Shazeer et al. 2017)."""

    num_experts: PositiveInt = 32
    """How many there are."""
    num_experts_per_token: PositiveInt = 4
    """How many see a word; the paper's number where experts are not grouped."""
    intermediate_size: PositiveInt | None = None
    """Hidden width of an expert; if not given, twice that of what it reads (appendix C.1)."""
    importance_weight: NonNegativeFloat = 0.01
    """What is added to the loss for uneven shares in the outcome; the paper's for translation."""
    load_weight: NonNegativeFloat = 0.01
    """What is added to the loss for uneven numbers of words; the paper's for translation."""
    after_layers: tuple[PositiveInt, ...] | None = None
    """The layers above which experts stand, counted from 1; if not given, all but the top one."""

    @model_validator(mode="after")
    def _check_num_experts(self) -> MoESublayerConfig:
        check_num_experts(self.num_experts, self.num_experts_per_token)
        return self

    @property
    def min_layers(self) -> int:
        """How many layers there must be, for experts to stand between them."""
        return max(self.after_layers or (1,)) + 1

    def is_after(self, layer: int) -> bool:
        """Whether there are experts between this layer and the next."""
        return self.after_layers is None or layer in self.after_layers

    def build(self, *, size: int, dropout: float) -> MoESublayer:
        """Make experts for what is of this width."""
        experts = MixtureOfExperts(
            size,
            hidden_size=self.intermediate_size or 2 * size,
            num_experts=self.num_experts,
            num_experts_per_token=self.num_experts_per_token,
            importance_weight=self.importance_weight,
            load_weight=self.load_weight,
        )
        return MoESublayer(experts, dropout=dropout)


def check_num_experts(num_experts: int, num_experts_per_token: int) -> None:
    """Refuse to choose more experts than there are."""
    if num_experts_per_token > num_experts:
        raise ValueError(
            f"num_chosen is {num_experts_per_token}, but there are {num_experts} experts"
        )


# Expert feed-forward sublayers: what do a few of many networks make of each place?
#
# Law: places that are not there are sent to nobody and come out as zeros. Those that are have no
# influence on one another, but for training with a capacity: there the places of a batch compete,
# and what finds an expert full goes past it by the residual path alone.


class MoEFeedForward(PositionwiseLayer):
    """sum over the chosen i of G(x)_i E_i(x), in place of one network for all.

    (Shazeer et al. 2017; in a Transformer, Liu et al. 2018.)
    """

    def __init__(self, experts: MixtureOfExperts) -> None:
        super().__init__()
        self.experts = experts

    def forward(
        self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> FeedForwardOutput:
        """Let experts see the places where the mask is True."""
        mixed: MoEOutput = self.experts(inputs, mask)
        return FeedForwardOutput(mixed.outputs, mixed.auxiliary_losses)


class MoEFeedForwardConfig(BaseConfig):
    """Send each place to a few of many such networks (Shazeer et al. 2017)."""

    type: Literal["moe"] = "moe"
    num_experts: PositiveInt = 32
    """How many there are."""
    num_experts_per_token: PositiveInt = 2
    """How many see a place."""
    intermediate_size: PositiveInt = 2048
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
    def _check_num_experts(self) -> MoEFeedForwardConfig:
        check_num_experts(self.num_experts, self.num_experts_per_token)
        return self

    def build(self, *, size: int) -> PositionwiseLayer:
        """Make the sublayer for places of this width."""
        experts = MixtureOfExperts(
            size,
            hidden_size=self.intermediate_size,
            num_experts=self.num_experts,
            num_experts_per_token=self.num_experts_per_token,
            importance_weight=self.importance_weight,
            load_weight=self.load_weight,
            capacity_factor=self.capacity_factor,
            activation=self.activation,
            bias=self.bias,
        )
        return MoEFeedForward(experts)
