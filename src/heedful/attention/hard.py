"""Hard alignments: at which one place does attention look?

Each wraps an alignment that shares attention, and takes its shares for the probabilities of the
places. When a model is used, all look at the likeliest place. They differ in how it is trained:
not at all, by reward, or by a gradient that stands in for the one that a choice does not have.
Hidden places are never chosen, and where nothing is visible nothing is.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from heedful.attention.alignments import Aligned, Alignment, Looked, Sharing
from heedful.attention.baselines import Baseline
from heedful.attention.past import Past
from heedful.attention.penalties import entropy
from heedful.shapes import Bool, Float, Int

Credit = Literal["sentence", "future"]


class Argmax(Alignment):
    """One at the likeliest place, zero elsewhere; no gradient reaches the scores."""

    def __init__(self, inner: Sharing) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Look at the likeliest place."""
        probabilities = self.inner.share(scores, mask)
        return Aligned(_one_hot(_likeliest(probabilities), probabilities), probabilities)


class Sampled(Alignment):
    """s ~ probabilities, learned by reward  (Xu et al. 2015, section 4.1).

    gradient = d log p(y|s) + reward_scale (reward - baseline) d log p(s) + entropy_bonus d H[s]

    With probability `soft_share`, drawn once per source, a row uses the probabilities themselves.
    The reward of a choice is the log-likelihood of the whole sentence, as in the paper, or of its
    own target and those after it: of the ones before it is no cause, so that scatters less. The
    constants are those of the authors' code.
    """

    def __init__(
        self,
        inner: Sharing,
        baseline: Baseline,
        *,
        soft_share: float = 0.5,
        reward_scale: float = 0.1,
        entropy_bonus: float = 0.002,
        credit: Credit = "sentence",
    ) -> None:
        super().__init__()
        self.inner = inner
        self.baseline = baseline
        self.soft_share = soft_share
        self.reward_scale = reward_scale
        self.entropy_bonus = entropy_bonus
        self.credit = credit

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Draw a place for each query; when not training, take the likeliest."""
        probabilities = self.inner.share(scores, mask)
        if not self.training:
            return Aligned(_one_hot(_likeliest(probabilities), probabilities), probabilities)
        chance = (
            torch.rand(scores.shape[:-2], device=scores.device) if past is None else past.chance
        )
        is_soft = (chance < self.soft_share).unsqueeze(-1)  # (*B, 1)
        places = _draw(probabilities)
        drawn = _one_hot(places, probabilities)
        weights = torch.where(is_soft.unsqueeze(-1), probabilities, drawn)
        chosen = probabilities.gather(-1, places).squeeze(-1)  # (*B, T)
        log_probs = chosen.masked_fill(is_soft | (chosen == 0), 1).log()
        return Aligned(weights, probabilities, log_probs, self.baseline(log_probs, queries))

    def penalise(self, looked: Looked) -> dict[str, Float[Tensor, ""]]:
        """Give the terms whose gradient is that of the expected reward; none if none was drawn."""
        _, probabilities, log_probs, expected, *_ = looked.aligned
        if probabilities is None or log_probs is None or expected is None:
            return {}
        rewards = self._rewards(looked)
        gained = (rewards - expected).detach() * log_probs
        undecided = entropy(probabilities)
        return {
            "reinforce": -self.reward_scale * gained.masked_fill(~looked.real, 0).sum(),
            "entropy-bonus": -self.entropy_bonus * undecided.masked_fill(~looked.real, 0).sum(),
            **self.baseline.learn(rewards, expected, looked.real),
        }

    def _rewards(self, looked: Looked) -> Float[Tensor, "*B T"]:
        rewards = looked.log_likelihoods.detach().masked_fill(~looked.real, 0)
        if self.credit == "sentence":
            return rewards.sum(dim=-1, keepdim=True).expand_as(rewards)
        return rewards.flip(-1).cumsum(dim=-1).flip(-1)


class StraightThrough(Alignment):
    """One at a single place in value, the probabilities in gradient  (Bengio et al. 2013).

    In training the place is drawn or, if `drawn` is False, the likeliest as in use.
    """

    def __init__(self, inner: Sharing, *, drawn: bool = True) -> None:
        super().__init__()
        self.inner = inner
        self.drawn = drawn

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Look at one place for each query."""
        probabilities = self.inner.share(scores, mask)
        choose = _draw if self.training and self.drawn else _likeliest
        hard = _one_hot(choose(probabilities), probabilities)
        return Aligned(_through(hard, probabilities), probabilities)


class GumbelSoftmax(Alignment):
    """softmax((log probabilities + g) / temperature), g = -log(-log(uniform)).

    (Jang et al. 2017, equation 2; Maddison et al. 2017.) The largest of these weights lies at a
    place drawn from the probabilities; the lower the temperature, the nearer they come to it
    alone. With `straight_through` they are that place in value and themselves in gradient.
    """

    def __init__(
        self, inner: Sharing, *, temperature: float = 1.0, straight_through: bool = False
    ) -> None:
        super().__init__()
        assert temperature > 0, temperature
        self.inner = inner
        self.temperature = temperature
        self.straight_through = straight_through

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Relax a draw for each query; when not training, take the likeliest place."""
        probabilities = self.inner.share(scores, mask)
        if not self.training:
            return Aligned(_one_hot(_likeliest(probabilities), probabilities), probabilities)
        noisy = _perturbed(probabilities, self.temperature).softmax(dim=-1)
        relaxed = noisy.to(scores.dtype) * mask
        if self.straight_through:
            relaxed = _through(_one_hot(_likeliest(relaxed), relaxed), relaxed)
        return Aligned(relaxed, probabilities)


def _likeliest(probabilities: Float[Tensor, "*B T S"]) -> Int[Tensor, "*B T 1"]:
    return probabilities.argmax(dim=-1, keepdim=True)


def _draw(probabilities: Float[Tensor, "*B T S"]) -> Int[Tensor, "*B T 1"]:
    """Draw by the largest of the perturbed: torch.multinomial refuses rows of zeros and NaN."""
    return _likeliest(_perturbed(probabilities.detach()))


def _perturbed(
    probabilities: Float[Tensor, "*B T S"], temperature: float = 1.0
) -> Float[Tensor, "*B T S"]:
    """(log p + g) / temperature; the least number there is where p is zero."""
    # In half precision too many sums would be equal, and the first of equals would win.
    wide = probabilities.to(torch.promote_types(probabilities.dtype, torch.float32))
    is_never = wide == 0
    noise = -torch.empty_like(wide).exponential_().log()
    noisy = (wide.masked_fill(is_never, 1).log() + noise) / temperature
    return noisy.masked_fill(is_never, torch.finfo(wide.dtype).min)


def _one_hot(
    places: Int[Tensor, "*B T 1"], probabilities: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    shares = probabilities.detach()
    chosen = shares.gather(-1, places)
    ones = chosen.masked_fill(chosen > 0, 1)  # zero where nothing is visible; NaN stays NaN
    return torch.zeros_like(shares).scatter(-1, places, ones)


def _through(
    hard: Float[Tensor, "*B T S"], soft: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    """Take the value of one and the gradient of the other."""
    return hard + (soft - soft.detach())
