"""The choices of attention, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from heedful.attention.alignments import Alignment, Softmax
from heedful.attention.attend import Attention
from heedful.attention.readouts import Expectation, Readout
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


class SoftmaxConfig(Choice):
    """Share attention in proportion to the exponential of the score."""

    kind: Literal["softmax"] = "softmax"

    def build(self) -> Alignment:
        """Make the alignment."""
        return Softmax()


AlignmentConfig = SoftmaxConfig


class ExpectationConfig(Choice):
    """Take the mean of the values under the weights."""

    kind: Literal["expectation"] = "expectation"

    def build(self) -> Readout:
        """Make the readout."""
        return Expectation()


ReadoutConfig = ExpectationConfig


class AttentionConfig(Choice):
    """How attention scores, where it goes and what it takes."""

    score: ScoreConfig = AdditiveScoreConfig()
    """How strongly each place of the source is called for."""
    align: AlignmentConfig = SoftmaxConfig()
    """Where attention goes."""
    read: ReadoutConfig = ExpectationConfig()
    """What is taken."""

    def build(self, *, query_size: int, memory_size: int) -> Attention:
        """Make the mechanism for queries and memories of these widths."""
        score = self.score.build(query_size=query_size, key_size=memory_size)
        return Attention(score, self.align.build(), self.read.build())
