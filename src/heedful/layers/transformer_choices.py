"""A stack of Transformer layers, as a configuration describes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt
from torch import nn

from heedful.attention.attend import Attends
from heedful.attention.choices.attention import AttentionConfig
from heedful.attention.choices.content import ScaledDotScoreConfig
from heedful.attention.choices.heads import HeadsConfig
from heedful.attention.choices.positions import PositionConfig, SinusoidalPositionsConfig
from heedful.config import Choice
from heedful.layers.embeddings import Embedding
from heedful.layers.feedforward_choices import FeedForwardConfig, PlaceWiseConfig
from heedful.layers.looking_within import within_a_source
from heedful.layers.residual import NormKind, Placement, Residual, make_norm
from heedful.layers.span_choices import FullSpanConfig, SpanConfig
from heedful.layers.transformer import SourceAttention, TransformerLayer, TransformerStack

Share = Annotated[float, Field(ge=0, lt=1)]
MANY_HEADS = AttentionConfig(score=ScaledDotScoreConfig(), heads=HeadsConfig(num_heads=8))


class TransformerParts(Choice):
    """Layers of self-attention and feed-forward networks (Vaswani et al. 2017)."""

    size: PositiveInt = 512
    """Width of a place, from the embedding to the last layer."""
    num_layers: PositiveInt = 6
    """Layers on top of one another."""
    attention: AttentionConfig = MANY_HEADS
    """How places look at one another."""
    spans: tuple[SpanConfig, ...] = Field(default=(FullSpanConfig(),), min_length=1)
    """How far places see, layer by layer, and from the first again when the list is over."""
    feedforwards: tuple[PlaceWiseConfig, ...] = Field(default=(FeedForwardConfig(),), min_length=1)
    """What places make of themselves, layer by layer, and from the first again."""
    norm: NormKind = "layer"
    """What is normalised: mean and variance (layer), or the mean square alone (rms)."""
    norm_placement: Placement = "after"
    """Whether sublayers are normalised after (the paper) or before what they do."""
    norm_epsilon: PositiveFloat = 1e-5
    """What is added to a variance lest it be zero."""
    dropout: Share = 0.1
    """Share of values dropped from embeddings, and from what each sublayer adds."""
    skipped: Share = 0.0
    """How often the top layer is skipped in training; lower ones less (Huang et al. 2016)."""

    def stack(
        self, *, at: str, look_at_source: Callable[[], Attends] | None = None
    ) -> TransformerStack:
        """Make the layers, each with attention to a source if it is said how that is made."""
        layers = [self._layer(number, at, look_at_source) for number in range(self.num_layers)]
        return TransformerStack(layers, self._norm() if self.norm_placement == "before" else None)

    def _layer(
        self, number: int, at: str, look_at_source: Callable[[], Attends] | None
    ) -> TransformerLayer:
        span = self.spans[number % len(self.spans)]
        feedforward = self.feedforwards[number % len(self.feedforwards)]
        return TransformerLayer(
            span.build(self._looking_within(at), size=self.size),
            self._residual(number),
            feedforward.build(size=self.size),
            self._residual(number),
            look_at_source and SourceAttention(look_at_source(), self._residual(number)),
        )

    def _looking_within(self, at: str) -> Attends:
        return within_a_source(
            self.attention, query_size=self.size, memory_size=self.size, at=f"{at}.attention"
        )

    def _residual(self, number: int) -> Residual:
        return Residual(
            self._norm(),
            placement=self.norm_placement,
            dropout=self.dropout,
            skipped=self.skipped * (number + 1) / self.num_layers,
        )

    def _norm(self) -> nn.Module:
        return make_norm(self.norm, self.size, eps=self.norm_epsilon)


class PlacedTransformerParts(TransformerParts):
    """Transformer layers over words that are told their places."""

    positions: PositionConfig | None = SinusoidalPositionsConfig()
    """How words are told their places; if not given, only a score that knows distances does."""
    scaled_embeddings: bool = True
    """Whether words are multiplied by the root of the width (Vaswani et al. 2017), or not
    (Devlin et al. 2019)."""
    embedding_norm: bool = False
    """Whether embeddings are normalised before the first layer (Devlin et al. 2019)."""

    def embedding(self, vocabulary_size: int) -> Embedding:
        """Make the embedding, for a table that may be shared with an emission."""
        placing = self.positions.build(embedding_size=self.size) if self.positions else None
        return Embedding(
            vocabulary_size,
            self.size,
            dropout=self.dropout,
            placing=placing,
            scaled=self.scaled_embeddings,
            norm=self._norm() if self.embedding_norm else None,
        )
