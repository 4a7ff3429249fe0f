"""How a self-attentive cell asks its past, as a configuration names it: `form: additive`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from heedful.attention import AdditiveScore
from heedful.attention.choices.content import (
    AdditiveScoreConfig,
    BilinearScoreConfig,
    ConcatScoreConfig,
    CosineScoreConfig,
    DotScoreConfig,
    LinearScoreConfig,
    ProjectedDotScoreConfig,
    ScaledDotScoreConfig,
    TrilinearScoreConfig,
)
from heedful.config import Choice
from heedful.layers.tapes import OwnPast

SimilarityConfig = Annotated[
    ProjectedDotScoreConfig
    | DotScoreConfig
    | ScaledDotScoreConfig
    | BilinearScoreConfig
    | CosineScoreConfig
    | TrilinearScoreConfig
    | LinearScoreConfig
    | AdditiveScoreConfig
    | ConcatScoreConfig,
    Field(discriminator="kind"),
]


class SimilarityFormConfig(Choice):
    """Compare every past state with the last context: similarity(h_i, c)."""

    kind: Literal["similarity"] = "similarity"
    score: SimilarityConfig = ProjectedDotScoreConfig()
    """What similar means."""

    @model_validator(mode="after")
    def _knows_no_past(self) -> SimilarityFormConfig:
        if isinstance(self.score, AdditiveScoreConfig) and self.score.features:
            raise ValueError("the score of a cell's own past takes no features; leave them out")
        return self

    def build(self, *, input_size: int, hidden_size: int) -> OwnPast:
        """Make the attention of a cell for inputs and states of these widths."""
        del input_size  # it does not ask
        score = self.score.build(query_size=hidden_size, key_size=hidden_size)
        return OwnPast(score, hidden_size=hidden_size, input_asks=False)


class AdditiveFormConfig(Choice):
    """Let input and last context ask: v . tanh(W_x x_t + W_c c + W_h h_i)."""

    kind: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Width of that tanh layer."""

    def build(self, *, input_size: int, hidden_size: int) -> OwnPast:
        """Make the attention of a cell for inputs and states of these widths."""
        score = AdditiveScore(input_size + hidden_size, hidden_size, hidden_size=self.hidden_size)
        return OwnPast(score, hidden_size=hidden_size, input_asks=True)


def named(said: Any) -> Any:
    """Take a name alone for a section with that kind."""
    return {"kind": said} if isinstance(said, str) else said


_Forms = AdditiveFormConfig | SimilarityFormConfig
FormConfig = Annotated[
    _Forms,
    Field(discriminator="kind"),
    BeforeValidator(named, json_schema_input_type=Literal["additive", "similarity"] | _Forms),
]
