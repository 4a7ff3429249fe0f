"""Experts: which few of many small networks should see a word?

A gate sends every word to a few experts and mixes what they make of it, so a layer can hold far
more weights than a word costs. Law: words have no influence on one another's outputs, unless
experts have a capacity; padding is sent to nobody, counts for nothing and comes out as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from heedful.layers.feedforward import ACTIVATIONS, Activation
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
    loads: Float[Tensor, "X"]  # the share of each expert in all that was sent to them
    sent: Int[Tensor, ""]  # to how many experts words were sent, all words together
    dropped: Int[Tensor, ""]  # of these, how often the expert was full


class Experts(nn.Module):
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
    place to a later one. That is so in training alone, unless `is_limited_in_use`: who asks a
    trained model gets the same answer in any company.
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
        capacity_factor: float | None = None,
        is_limited_in_use: bool = False,
        activation: Activation = "relu",
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.gate = NoisyTopGate(size, num_experts=num_experts, num_chosen=num_chosen)
        self.experts = nn.ModuleList(
            _expert(size, hidden_size, activation=activation, bias=bias) for _ in range(num_experts)
        )
        self.importance_weight = importance_weight
        self.load_weight = load_weight
        self.capacity_factor = capacity_factor
        self.is_limited_in_use = is_limited_in_use

    def capacity(self, num_words: int) -> int | None:
        """How many of so many words an expert takes; None for all that it is sent."""
        if self.capacity_factor is None or not (self.training or self.is_limited_in_use):
            return None
        evenly = num_words * self.gate.num_chosen / len(self.experts)
        return math.ceil(self.capacity_factor * evenly)

    def forward(self, inputs: Float[Tensor, "*B S D"], mask: Bool[Tensor, "*B S"]) -> Mixed:
        """Let experts see the words where the mask is True."""
        words = inputs[mask]  # (W, D)
        gated = self.gate(words)
        counts = _counts(gated.chosen, len(self.experts))
        taken = self._take(gated.chosen, counts)
        outputs = torch.zeros_like(inputs)
        outputs[mask] = self._mix(words, gated.shares, taken).to(inputs.dtype)
        loads = counts / counts.sum().clamp(min=1)
        num_taken = sum(map(len, taken))
        dropped = counts.new_tensor(gated.chosen.numel() - num_taken)
        sent = counts.new_tensor(gated.chosen.numel())
        return Mixed(outputs, self._penalise(gated), loads, sent, dropped)

    def _take(self, chosen: Int[Tensor, "W C"], counts: Int[Tensor, "X"]) -> list[Int[Tensor, "_"]]:
        """Say what each expert takes: the places in `chosen`, read row by row, of what it gets."""
        order = chosen.flatten().argsort(stable=True)
        limit = self.capacity(len(chosen))
        return [part[:limit] for part in order.split(_sizes(counts, chosen.numel()))]

    def _mix(
        self,
        words: Float[Tensor, "W D"],
        shares: Float[Tensor, "W C"],
        taken: Sequence[Int[Tensor, "_"]],
    ) -> Float[Tensor, "W D"]:
        """Give each expert all of its words at once, and add up what comes back."""
        places = torch.cat(list(taken))
        sent = places // shares.size(-1)  # which word
        parts = words[sent].split([len(each) for each in taken])
        experts = cast(Iterable[nn.Module], self.experts)
        made = [expert(part) for expert, part in zip(experts, parts, strict=True)]
        given = torch.cat(made) * shares.flatten()[places].unsqueeze(-1)
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


def _expert(size: int, hidden_size: int, *, activation: Activation, bias: bool) -> nn.Module:
    """One hidden layer; without biases, as the paper counts its weights."""
    into, out = nn.Linear(size, hidden_size, bias=bias), nn.Linear(hidden_size, size, bias=bias)
    return nn.Sequential(into, ACTIVATIONS[activation](), out)


def _counts(chosen: Int[Tensor, "W C"], num_experts: int) -> Int[Tensor, "X"]:
    """How many words each expert is sent."""
    sends = chosen.flatten()
    return sends.new_zeros(num_experts).index_add(0, sends, torch.ones_like(sends))


def _sizes(counts: Int[Tensor, "X"], total: int) -> list[int]:
    """The counts as plain numbers; where tensors hold none, as if words were spread evenly."""
    if not counts.is_meta:
        return counts.tolist()
    each, more = divmod(total, len(counts))
    return [each + 1] * more + [each] * (len(counts) - more)


def _precise(numbers: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Half precision cannot add up the words of a batch."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))
