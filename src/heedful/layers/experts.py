"""Experts: which few of many small networks should see a word?

A gate sends every word to a few experts and mixes what they make of it, so a layer can hold far
more weights than a word costs. Law: words have no influence on one another's outputs; padding is
sent to nobody, counts for nothing and comes out as zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from heedful.shapes import Bool, Float, Int

NOISE_FLOOR = 1e-2
"""Added to the spread of the noise, in the authors' code; the paper's formula has no such term, and
would divide by nothing where the softplus vanishes."""


class Gated(NamedTuple):
    """To whom words are sent."""

    chosen: Int[Tensor, "W C"]  # the experts of each word, best first
    shares: Float[Tensor, "W C"]  # how much of the outcome is theirs
    chances: Float[Tensor, "W X"]  # of every expert to be chosen, were its own noise drawn again


class NoisyTopGate(nn.Module):
    """softmax(keep the k highest of H), H_i = (W_g x)_i + N(0, 1) softplus((W_noise x)_i).

    (Shazeer et al. 2017, equations 3 to 5.) The noise is drawn in training only. All weights begin
    at zero, so that at first the noise alone decides, and spreads words evenly. The chance of an
    expert is Phi(((W_g x)_i - the k-th highest H but for H_i) / spread_i) (equation 9); without
    noise it is one or zero.
    """

    def __init__(self, input_size: int, *, num_experts: int, num_chosen: int) -> None:
        super().__init__()
        assert 0 < num_chosen <= num_experts, (num_chosen, num_experts)
        self.num_chosen = num_chosen
        self.score = nn.Linear(input_size, num_experts, bias=False)
        self.noise = nn.Linear(input_size, num_experts, bias=False)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.noise.weight)

    def forward(self, words: Float[Tensor, "W D"]) -> Gated:
        """Send each word to its experts."""
        clean = self.score(words)
        spread = softplus(self.noise(words)) + NOISE_FLOOR
        noisy = clean + torch.randn_like(clean) * spread if self.training else clean
        best, chosen = noisy.topk(self.num_chosen, dim=-1)
        is_chosen = torch.zeros_like(noisy, dtype=torch.bool).scatter(-1, chosen, True)
        shares = best.softmax(dim=-1)
        if not self.training or self.num_chosen == noisy.size(-1):
            return Gated(chosen, shares, _precise(is_chosen.to(noisy.dtype)))
        # To be among the best, a chosen one must beat the first that is not, and others the last
        # that is.
        next_best = noisy.masked_fill(is_chosen, -torch.inf).amax(dim=-1, keepdim=True)
        rival = torch.where(is_chosen, next_best, best[:, -1:])
        return Gated(chosen, shares, torch.special.ndtr(_precise(clean - rival) / _precise(spread)))


class Mixed(NamedTuple):
    """What experts made of words, and how evenly the words were spread among them."""

    outputs: Float[Tensor, "*B S D"]  # zero where there is no word
    penalties: dict[str, Float[Tensor, ""]]  # by name, to be added to the loss
    loads: Float[Tensor, "X"]  # the share of each expert in all that was sent


class Experts(nn.Module):
    """sum over the chosen i of G(x)_i E_i(x), E_i(x) = V_i relu(U_i x)  (Shazeer et al. 2017).

    Two penalties keep a few experts from getting all the words: weight * CV^2 of the sums over
    words of G(x)_i (importance, equation 7) and of the chances (load, equation 11), with
    CV^2 = variance / mean^2, the variance that of the whole population, as in the authors' code.

    The paper adds CV^2 once for a batch, whose error is a mean over words. Here penalties are sums
    like the error, for a learner to divide, so each is multiplied by the number of words.
    """

    def __init__(
        self,
        size: int,
        *,
        hidden_size: int,
        num_experts: int,
        num_chosen: int,
        importance_weight: float,
        load_weight: float,
    ) -> None:
        super().__init__()
        self.gate = NoisyTopGate(size, num_experts=num_experts, num_chosen=num_chosen)
        self.experts = nn.ModuleList(_expert(size, hidden_size) for _ in range(num_experts))
        self.importance_weight = importance_weight
        self.load_weight = load_weight

    def forward(self, inputs: Float[Tensor, "*B S D"], mask: Bool[Tensor, "*B S"]) -> Mixed:
        """Let experts see the words where the mask is True."""
        words = inputs[mask]  # (W, D)
        gated = self.gate(words)
        outputs = torch.zeros_like(inputs)
        outputs[mask] = self._mix(words, gated).to(inputs.dtype)
        counts = gated.chosen.flatten().bincount(minlength=len(self.experts))
        loads = counts / counts.sum().clamp(min=1)
        return Mixed(outputs, self._penalise(gated), loads)

    def _mix(self, words: Float[Tensor, "W D"], gated: Gated) -> Float[Tensor, "W D"]:
        """Give each expert all of its words at once, and add up what comes back."""
        chosen, num_chosen = gated.chosen.flatten(), gated.chosen.size(-1)
        order = chosen.argsort(stable=True)
        counts = chosen.bincount(minlength=len(self.experts)).tolist()
        sent = order // num_chosen  # which word
        experts = cast(Iterable[nn.Module], self.experts)
        parts = zip(experts, words[sent].split(counts), strict=True)
        made = torch.cat([expert(part) for expert, part in parts])  # (W * C, D)
        shares = gated.shares.flatten()[order].unsqueeze(-1)
        given = made * shares
        return given.new_zeros(words.shape).index_add(0, sent, given)

    def _penalise(self, gated: Gated) -> dict[str, Float[Tensor, ""]]:
        num_words = len(gated.chosen)
        nothing = torch.zeros_like(gated.chances)
        given = nothing.scatter(-1, gated.chosen, gated.shares.to(nothing.dtype))
        importance, load = (unevenness(each.sum(dim=0)) for each in (given, gated.chances))
        return {
            "expert-importance": self.importance_weight * importance * num_words,
            "expert-load": self.load_weight * load * num_words,
        }


class ExpertSublayer(nn.Module):
    """x + dropout(sigmoid(experts(x))): experts between recurrent layers.

    (Shazeer et al. 2017, appendix C.1.)
    """

    def __init__(self, experts: Experts, *, dropout: float) -> None:
        super().__init__()
        self.experts = experts
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Float[Tensor, "*B S D"], mask: Bool[Tensor, "*B S"]) -> Mixed:
        """Add what experts make of the words to the words."""
        mixed = self.experts(inputs, mask)
        return mixed._replace(outputs=inputs + self.dropout(mixed.outputs.sigmoid()))


def unevenness(amounts: Float[Tensor, "X"]) -> Float[Tensor, ""]:
    """Squared coefficient of variation, variance / mean^2: zero if all are alike."""
    # A small number, that of the authors' code: no words are spread evenly.
    return amounts.var(correction=0) / (amounts.mean().square() + 1e-10)


def _expert(size: int, hidden_size: int) -> nn.Module:
    """One hidden layer and no biases, as the paper counts its weights."""
    into, out = nn.Linear(size, hidden_size, bias=False), nn.Linear(hidden_size, size, bias=False)
    return nn.Sequential(into, nn.ReLU(), out)


def _precise(numbers: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Half precision cannot add up the words of a batch."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))
