"""The scores, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from heedful.attention.scores import AdditiveScore, BilinearScore, DotScore, Score
from heedful.config import Choice
from heedful.errors import ConfigError


class DotScoreConfig(Choice):
    """Compare query and key by their dot product (Luong et al. 2015)."""

    kind: Literal["dot"] = "dot"

    def build(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for these sizes."""
        if query_size != key_size:
            raise ConfigError(
                "score.kind",
                f"a dot product needs equal sizes, but queries have {query_size} "
                f"and keys {key_size}",
                "make the sizes equal, or choose 'bilinear' or 'additive'",
            )
        return DotScore()


class BilinearScoreConfig(Choice):
    """Compare query and key through one matrix (Luong et al. 2015, "general")."""

    kind: Literal["bilinear"] = "bilinear"

    def build(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for these sizes."""
        return BilinearScore(query_size, key_size)


class AdditiveScoreConfig(Choice):
    """Compare query and key through a small tanh layer (Bahdanau et al. 2015)."""

    kind: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Width of that layer."""

    def build(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for these sizes."""
        return AdditiveScore(query_size, key_size, self.hidden_size)


ScoreConfig = Annotated[
    DotScoreConfig | BilinearScoreConfig | AdditiveScoreConfig, Field(discriminator="kind")
]
