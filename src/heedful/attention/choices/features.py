"""What the past adds inside an additive score, as a configuration names it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from heedful.attention.features import ContextFeature, CoverageFeature, Feature, LocationFeature
from heedful.config import Choice


class CoverageConfig(Choice):
    """See how much attention each place has had so far (See et al. 2017)."""

    kind: Literal["coverage"] = "coverage"

    def build(self, *, hidden_size: int, value_size: int) -> Feature:
        """Make the feature."""
        return CoverageFeature(hidden_size)


class LocationConvolutionConfig(Choice):
    """See where the last query looked, through filters (Chorowski et al. 2015)."""

    kind: Literal["location-convolution"] = "location-convolution"
    num_filters: PositiveInt = 10
    """Filters; 10 as in the paper."""
    width: PositiveInt = 5
    """Places that a filter sees, an odd number: 5 for words; the paper's 201 are for speech."""

    @field_validator("width")
    @classmethod
    def _has_a_middle(cls, width: int) -> int:
        if width % 2 == 0:
            raise ValueError("a filter has a middle, so its width is odd")
        return width

    def build(self, *, hidden_size: int, value_size: int) -> Feature:
        """Make the feature."""
        return LocationFeature(hidden_size, num_filters=self.num_filters, width=self.width)


class LastContextConfig(Choice):
    """See what the last query took (Cheng et al. 2016)."""

    kind: Literal["last-context"] = "last-context"

    def build(self, *, hidden_size: int, value_size: int) -> Feature:
        """Make the feature."""
        return ContextFeature(hidden_size, value_size=value_size)


FeatureConfig = Annotated[
    CoverageConfig | LocationConvolutionConfig | LastContextConfig, Field(discriminator="kind")
]
