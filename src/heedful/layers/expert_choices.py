"""Experts, as a configuration describes them."""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveInt, model_validator

from heedful.config import Choice
from heedful.layers.experts import Experts, ExpertSublayer


class ExpertsConfig(Choice):
    """Send each word to a few of many small networks, between layers (Shazeer et al. 2017)."""

    num_experts: PositiveInt = 32
    """How many there are."""
    num_chosen: PositiveInt = 4
    """How many see a word; the paper's number where experts are not grouped."""
    hidden_size: PositiveInt | None = None
    """Hidden width of an expert; if not given, twice that of what it reads (appendix C.1)."""
    importance_weight: NonNegativeFloat = 0.01
    """What is added to the loss for uneven shares in the outcome; the paper's for translation."""
    load_weight: NonNegativeFloat = 0.01
    """What is added to the loss for uneven numbers of words; the paper's for translation."""
    above: tuple[PositiveInt, ...] | None = None
    """The layers above which experts stand, counted from 1; if not given, all but the top one."""

    @model_validator(mode="after")
    def _are_enough(self) -> ExpertsConfig:
        require_enough(self.num_experts, self.num_chosen)
        return self

    @property
    def least_layers(self) -> int:
        """How many layers there must be, for experts to stand between them."""
        return max(self.above or (1,)) + 1

    def stand_above(self, layer: int) -> bool:
        """Whether there are experts between this layer and the next."""
        return self.above is None or layer in self.above

    def build(self, *, size: int, dropout: float) -> ExpertSublayer:
        """Make experts for what is of this width."""
        experts = Experts(
            size,
            hidden_size=self.hidden_size or 2 * size,
            num_experts=self.num_experts,
            num_chosen=self.num_chosen,
            importance_weight=self.importance_weight,
            load_weight=self.load_weight,
        )
        return ExpertSublayer(experts, dropout=dropout)


def require_enough(num_experts: int, num_chosen: int) -> None:
    """Refuse to choose more experts than there are."""
    if num_chosen > num_experts:
        raise ValueError(f"num_chosen is {num_chosen}, but there are {num_experts} experts")
