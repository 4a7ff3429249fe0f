"""Gates of a mixture of experts: which experts process a token (Shazeer et al. 2017).

Invariant: in eval mode the experts of a token do not depend on the other tokens.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from heedful.shapes import Float, Int, Scalar

Tokens = Float[Tensor, "W D"]

NOISE_FLOOR = 1e-2
"""Added to the standard deviation of the noise, as in the authors' code. The paper's formula has no
such term, and would divide by zero where the softplus vanishes."""


class Routing(NamedTuple):
    """Pairs of a token and an expert that processes it."""

    token_indices: Int[Tensor, "E"]
    expert_indices: Int[Tensor, "E"]
    gate_weights: Float[Tensor, "E"]  # of the experts' outputs
    load: Float[Tensor, "X"]  # tokens of each expert, expected if its own noise were sampled again
    threshold_loss: Scalar | None = None

    @property
    def counts(self) -> Int[Tensor, "X"]:
        """Number of tokens of each expert."""
        ones = torch.ones_like(self.expert_indices)
        return ones.new_zeros(len(self.load)).index_add(0, self.expert_indices, ones)

    def by_expert(self) -> Sequence[Int[Tensor, "_"]]:
        """Return the indices of the pairs of each expert."""
        sizes = _sizes(self.counts, len(self.expert_indices))
        return self.expert_indices.argsort(stable=True).split(sizes)


class NoisyTopKGate(nn.Module):
    """softmax(keep the k highest of H), H_i = (W_g x)_i + N(0, 1) softplus((W_noise x)_i).

    (Shazeer et al. 2017, equations 3 to 5.) Noise is sampled in training only. All parameters start
    at zero, so that only the noise decides at first, and spreads tokens evenly. The load of expert
    i is the sum of its selection probabilities Phi(((W_g x)_i - the k-th highest H other than H_i)
    / noise_std_i) (equations 9 and 10); without noise these are one or zero.
    """

    def __init__(self, input_size: int, num_experts: int, num_experts_per_token: int) -> None:
        super().__init__()
        assert 0 < num_experts_per_token <= num_experts, (num_experts_per_token, num_experts)
        self.num_experts_per_token = num_experts_per_token
        self.score = nn.Linear(input_size, num_experts, bias=False)
        self.noise = nn.Linear(input_size, num_experts, bias=False)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.noise.weight)

    def forward(self, tokens: Tokens) -> Routing:
        """Route each token to its experts, best first."""
        clean = self.score(tokens)
        noise_std = softplus(self.noise(tokens)) + NOISE_FLOOR
        noisy = clean + torch.randn_like(clean) * noise_std if self.training else clean
        best, indices = noisy.topk(self.num_experts_per_token, dim=-1)
        is_selected = torch.zeros_like(noisy, dtype=torch.bool).scatter(-1, indices, True)
        if not self.training or self.num_experts_per_token == noisy.size(-1):
            selection_probs = _upcast(is_selected.to(noisy.dtype))
        else:
            # A selected expert must beat the best of the others, any other the last selected one.
            next_best = noisy.masked_fill(is_selected, -torch.inf).amax(dim=-1, keepdim=True)
            threshold = torch.where(is_selected, next_best, best[:, -1:])
            selection_probs = torch.special.ndtr(_upcast(clean - threshold) / _upcast(noise_std))
        token_indices = torch.arange(len(tokens), device=tokens.device)
        token_indices = token_indices.repeat_interleave(self.num_experts_per_token)
        gate_weights, load = best.softmax(dim=-1), selection_probs.sum(dim=0)
        return Routing(token_indices, indices.flatten(), gate_weights.flatten(), load)


class StrictlyBalancedGate(nn.Module):
    """softmax(W_g x), of which every expert keeps its highest  (Shazeer et al. 2017, appendix F).

    In training an expert processes the k * tokens / experts tokens to which the softmax gives its
    highest values (equation 18): a token has k experts on average, and some may have none. At
    inference expert i processes the tokens with values above a threshold T_i (equation 19). The
    values of the selected experts are normalized (equation 16). T, and here nothing else, learns
    from sum (above T - among the highest) (value - T)  (equation 20).
    """

    def __init__(self, input_size: int, num_experts: int, num_experts_per_token: int) -> None:
        super().__init__()
        assert 0 < num_experts_per_token <= num_experts, (num_experts_per_token, num_experts)
        self.num_experts_per_token = num_experts_per_token
        self.score = nn.Linear(input_size, num_experts, bias=False)
        self.threshold = nn.Parameter(torch.full((num_experts,), 1 / num_experts))

    def forward(self, tokens: Tokens) -> Routing:
        """Route tokens to their experts."""
        scores, num_experts = self.score(tokens), len(self.threshold)
        values = scores.detach().softmax(dim=-1)
        is_selected = is_above = values > self.threshold
        if self.training or tokens.is_meta:  # the meta device has no values to compare
            num_tokens = math.ceil(len(tokens) * self.num_experts_per_token / num_experts)
            best = values.topk(num_tokens, dim=0).indices  # (tokens of an expert, X)
            is_selected = torch.zeros_like(is_above).scatter(0, best, True)
            expert_indices = torch.arange(num_experts, device=tokens.device)
            expert_indices = expert_indices.repeat_interleave(num_tokens)
            token_indices = best.T.flatten()
        else:
            expert_indices, token_indices = is_selected.T.nonzero().unbind(dim=1)
        # finfo.min, not -inf: a token without experts must not give NaN.
        masked_scores = scores.masked_fill(~is_selected, torch.finfo(scores.dtype).min)
        gate_weights = masked_scores.softmax(dim=-1)[token_indices, expert_indices]
        threshold_errors = is_above.to(values.dtype) - is_selected.to(values.dtype)
        loss = _upcast(threshold_errors * (values - self.threshold)).sum()
        load = _upcast(is_selected.to(values.dtype)).sum(dim=0)
        return Routing(token_indices, expert_indices, gate_weights, load, loss)


class HierarchicalGate(nn.Module):
    """A gate that selects groups of experts, and a gate in each group that selects its experts.

    The output is sum_i sum_j G_primary(x)_i G_i(x)_j E_ij(x)  (Shazeer et al. 2017, equation 12).
    The load of E_ij is Load_primary_i Load_i(X_i)_j / |X_i|, with the tokens X_i of group i
    (equation 14).
    """

    def __init__(self, primary: nn.Module, secondary: Sequence[nn.Module]) -> None:
        super().__init__()
        self.primary, self.secondary = primary, nn.ModuleList(secondary)

    def forward(self, tokens: Tokens) -> Routing:
        """Route tokens to groups, and the tokens of a group to its experts."""
        outer: Routing = self.primary(tokens)
        parts, loss = [], outer.threshold_loss
        for group, (gate, pairs) in enumerate(zip(self.secondary, outer.by_expert(), strict=True)):
            members = outer.token_indices[pairs]
            inner: Routing = gate(tokens[members])
            expert_indices = inner.expert_indices + group * len(inner.load)
            gate_weights = outer.gate_weights[pairs][inner.token_indices] * inner.gate_weights
            load = outer.load[group] * inner.load / max(len(members), 1)
            parts.append((members[inner.token_indices], expert_indices, gate_weights, load))
            if loss is not None and inner.threshold_loss is not None:
                loss = loss + inner.threshold_loss
        tokens_of_pairs, experts, weights, loads = map(torch.cat, zip(*parts, strict=True))
        return Routing(tokens_of_pairs, experts, weights, loads, loss)


Gating = Literal["noisy-top-k", "strictly-balanced"]
_GATES = {"noisy-top-k": NoisyTopKGate, "strictly-balanced": StrictlyBalancedGate}


def build_gate(
    input_size: int,
    num_experts: int,
    num_experts_per_token: int,
    *,
    gating: Gating,
    num_groups: int | None,
    num_groups_per_token: int,
) -> nn.Module:
    """Build a gate over all experts, or with groups one over groups and one in each group."""
    build = partial(_GATES[gating], input_size)
    if num_groups is None:
        return build(num_experts, num_experts_per_token)
    sizes = (num_experts // num_groups, num_experts_per_token // num_groups_per_token)
    primary = build(num_groups, num_groups_per_token)
    return HierarchicalGate(primary, [build(*sizes) for _ in range(num_groups)])


def _sizes(counts: Int[Tensor, "X"], total: int) -> list[int]:
    """Return the counts as integers; on the meta device, which has none, an even split."""
    if not counts.is_meta:
        return counts.tolist()
    share, rest = divmod(total, len(counts))
    return [share + 1] * rest + [share] * (len(counts) - rest)


def _upcast(values: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    # Half precision cannot sum over the tokens of a batch.
    return values.to(torch.promote_types(values.dtype, torch.float))
