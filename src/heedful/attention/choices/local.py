"""Local attention, as a configuration names it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from heedful.attention.alignments import Alignment
from heedful.attention.centres import Centre, PredictedCentre, StepCentre
from heedful.attention.choices.sharing import SharingConfig, SoftmaxConfig
from heedful.attention.local import Local
from heedful.config import Choice


class StepCentreConfig(Choice):
    """Go one place on with every query, up to the last (Luong et al. 2015, "local-m")."""

    kind: Literal["step"] = "step"

    def build(self, *, query_size: int) -> Centre:
        """Make the centre."""
        return StepCentre()


class PredictedCentreConfig(Choice):
    """Let the query say how far along the source it looks (Luong et al. 2015, "local-p")."""

    kind: Literal["predicted"] = "predicted"
    hidden_size: PositiveInt = 256
    """Width of the layer that says so."""

    def build(self, *, query_size: int) -> Centre:
        """Make the centre."""
        return PredictedCentre(query_size, hidden_size=self.hidden_size)


CentreConfig = Annotated[StepCentreConfig | PredictedCentreConfig, Field(discriminator="kind")]


class LocalConfig(Choice):
    """Look only at places round a centre (Luong et al. 2015); the defaults are "local-p"."""

    kind: Literal["local"] = "local"
    centre: CentreConfig = PredictedCentreConfig()
    """Round which place a query looks."""
    reach: PositiveInt = 10
    """Places to be seen on either side of the centre; 10 in the paper."""
    taper: Literal["none", "before", "after"] = "after"
    """How places near the centre are favoured: `after` multiplies the weights by a Gaussian, as in
    the paper, so that they sum to less than one; `before` adds its logarithm to the scores, so
    that they sum to one; `none` favours no place, as in "local-m"."""
    inner: SharingConfig = SoftmaxConfig()
    """How attention is shared within the window."""

    @model_validator(mode="after")
    def _can_learn_its_centre(self) -> LocalConfig:
        if self.centre.kind == "predicted" and self.taper == "none":
            raise ValueError("a predicted centre learns through a taper: 'before' or 'after'")
        return self

    def build(self, *, query_size: int) -> Alignment:
        """Make the alignment."""
        inner = self.inner.build(query_size=query_size)
        centre = self.centre.build(query_size=query_size)
        return Local(inner, centre, reach=self.reach, taper=self.taper)
