"""The forecaster: p(z_t | z_<t, x_<=t), by recurrent layers (DeepAR) or a causal Transformer.

h_t = f(h_<t, z_(t-l) / nu for each lag l, x_t), z_t ~ p(. | theta(h_t, nu))  (Salinas et al. 2020,
equation 1). Invariants: an output does not depend on later values; a window read at once gives the
distributions of one read step by step; the paths of a series do not depend on its batch.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.positional_encoding import PositionalEncodingConfig, PositionCombiner
from heedful.config import BaseConfig
from heedful.data.series.batching import CovariatesConfig, SeriesBatch, WindowShape
from heedful.errors import check
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.language_model import (
    BackboneConfig,
    BackboneOutput,
    CausalBackbone,
    RecurrentBackboneConfig,
)
from heedful.pytree import select_rows
from heedful.shapes import Bool, Float, Int, Losses
from heedful.tasks.forecasting.distributions import (
    DistributionHead,
    DistributionHeadConfig,
    GaussianHeadConfig,
    Parameters,
    SeriesScale,
)

Scaling = Literal["mean", "standard", "none"]
_MIN_DEVIATION = 1e-6
_NO_KEY = 2**63 - 1  # above the key of any series


class ForecastingOutput(NamedTuple):
    """Output of a forecaster for known values."""

    log_probs: Float[Tensor, "B T"]  # of each value; zero where it is missing
    auxiliary_losses: Losses


class SeriesEmbedding(nn.Module):
    """A learned vector for each training series (Salinas et al. 2020, section 3.4).

    A series that was not trained on has the zero vector.
    """

    keys: Int[Tensor, "N"]

    def __init__(self, max_series: int, embedding_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_series + 1, embedding_size, padding_idx=0)
        self.register_buffer("keys", torch.full((max_series,), _NO_KEY))

    def set_series(self, keys: Sequence[int]) -> None:
        """Set the series that have a vector."""
        different = sorted(set(keys))
        message = f"is {len(self.keys)}, but there are {len(different)} training series"
        location, hint = "model.series_embedding.max_series", f"set it to {len(different)} or more"
        check(len(different) <= len(self.keys), location, message, hint)
        self.keys.fill_(_NO_KEY)
        self.keys[: len(different)] = torch.tensor(different)

    def forward(self, keys: Int[Tensor, "B"]) -> Float[Tensor, "B E"]:
        """Return the vectors of series."""
        positions = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        is_known = self.keys[positions] == keys
        output: Tensor = self.embedding((positions + 1).masked_fill(~is_known, 0))
        return output


class SeriesEmbeddingConfig(BaseConfig):
    """A learned vector for each series, as an input of every step."""

    embedding_size: PositiveInt = 20
    """Size of a vector."""
    max_series: PositiveInt = Field(default=1000, le=10_000_000)
    """Training series that there may be."""

    def build(self) -> SeriesEmbedding:
        return SeriesEmbedding(self.max_series, self.embedding_size)


class ForecastingModel(nn.Module):
    """Inputs of lagged values and covariates, a causal backbone, an output distribution."""

    def __init__(
        self,
        backbone: CausalBackbone,
        head: DistributionHead,
        *,
        input_projection: nn.Linear | None,
        position_combiner: PositionCombiner | None,
        series_embedding: SeriesEmbedding | None,
        lags: Sequence[int],
        shape: WindowShape,
        scaling: Scaling,
        scale_offset: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.input_projection = input_projection
        self.position_combiner = position_combiner
        self.series_embedding = series_embedding
        self.backbone = backbone
        self.head = head
        self.dropout = nn.Dropout(dropout)
        self.lags = tuple(lags)
        self.shape = shape
        self.scaling = scaling
        self.scale_offset = scale_offset

    def forward(self, batch: SeriesBatch, *, need_weights: bool = False) -> ForecastingOutput:
        """Return the log-probabilities of known values, each given all before it."""
        parameters, output = self.predict_distributions(batch, need_weights=need_weights)
        start = batch.num_lagged
        targets, is_observed = batch.values[:, start:], batch.is_observed[:, start:]
        log_probs = self.head.log_prob(targets, parameters).masked_fill(~is_observed, 0)
        return ForecastingOutput(log_probs, output.auxiliary_losses)

    def predict_distributions(
        self, batch: SeriesBatch, *, need_weights: bool = False
    ) -> tuple[Parameters, BackboneOutput]:
        """Return the distribution of each value given all before it, (B, T)."""
        scale = self.compute_scale(batch)
        inputs = self._embed(batch, scale, 0, batch.covariates.size(1))
        output: BackboneOutput = self.backbone(
            inputs,
            inputs.new_full((len(inputs),), inputs.size(1), dtype=torch.long),
            self.backbone.initial_state(inputs),
            need_state=False,
            need_weights=need_weights,
        )
        return self.head(self.dropout(output.outputs), scale), output

    def compute_scale(self, batch: SeriesBatch) -> SeriesScale:
        """Return m = 0 and nu = 1 + mean |z| over the context (Salinas et al. 2020, section 3.3).

        With `standard`, mean and standard deviation instead. Missing values do not count.
        """
        start = batch.num_lagged
        context = slice(start, start + self.shape.context_length)
        values, is_observed = batch.values[:, context], batch.is_observed[:, context]
        zeros = values.new_zeros(len(values))
        if self.scaling == "none":
            return SeriesScale(zeros, zeros + 1)
        if self.scaling == "mean":
            scale = self.scale_offset + _masked_mean(values.abs(), is_observed)
            return SeriesScale(zeros, scale.clamp(min=_MIN_DEVIATION))
        mean = _masked_mean(values, is_observed)
        variance = _masked_mean((values - mean.unsqueeze(1)).square(), is_observed)
        return SeriesScale(mean, variance.sqrt() + _MIN_DEVIATION * (1 + mean.abs()))

    @torch.inference_mode()
    def sample_paths(
        self, batch: SeriesBatch, num_samples: int, generators: Sequence[torch.Generator]
    ) -> Float[Tensor, "B N P"]:
        """Sample paths of the prediction range, value by value (ancestral sampling).

        The values of the batch in that range are not read; each row has its own generator.
        """
        context_length, num_steps = self.shape.context_length, self.shape.prediction_length
        scale = self.compute_scale(batch)
        inputs = self._embed(batch, scale, 0, context_length)
        lengths = inputs.new_full((len(inputs),), context_length, dtype=torch.long)
        state = self.backbone(inputs, lengths, self.backbone.initial_state(inputs)).state
        rows = torch.arange(len(inputs), device=inputs.device).repeat_interleave(num_samples)
        state, scale, batch = select_rows((state, scale, batch), rows)
        values, is_observed = batch.values.clone(), batch.is_observed.clone()
        batch = batch._replace(values=values, is_observed=is_observed)
        ones = lengths.new_ones(len(rows))
        for position in range(context_length, context_length + num_steps):
            inputs = self._embed(batch, scale, position, position + 1)
            output: BackboneOutput = self.backbone(inputs, ones, state)
            state = output.state
            parameters = self.head(output.outputs, scale)
            samples = self._sample(parameters, num_samples, generators)
            values[:, batch.num_lagged + position] = samples.to(values)
            is_observed[:, batch.num_lagged + position] = True
        return values[:, -num_steps:].unflatten(0, (-1, num_samples))

    def _sample(
        self, parameters: Parameters, num_samples: int, generators: Sequence[torch.Generator]
    ) -> Float[Tensor, "B"]:
        rows = zip(*(part.flatten().cpu().split(num_samples) for part in parameters), strict=True)
        pairs = zip(rows, generators, strict=True)
        return torch.cat([self.head.sample(row, generator) for row, generator in pairs])

    def _embed(
        self, batch: SeriesBatch, scale: SeriesScale, start: int, stop: int
    ) -> Float[Tensor, "B T E"]:
        """Return the inputs of positions: lagged values, whether observed, covariates, series."""
        shifts = [batch.num_lagged - lag for lag in self.lags]
        is_observed = torch.stack(
            [batch.is_observed[:, start + shift : stop + shift] for shift in shifts], dim=-1
        )
        lagged = torch.stack(
            [batch.values[:, start + shift : stop + shift] for shift in shifts], dim=-1
        )
        location, nu = (part[:, None, None] for part in scale)
        lagged = ((lagged - location) / nu).masked_fill(~is_observed, 0)
        features = [lagged, is_observed.to(lagged.dtype), batch.covariates[:, start:stop]]
        if self.series_embedding is not None:
            vectors = self.series_embedding(batch.series_keys)
            features.append(vectors.unsqueeze(1).expand(-1, stop - start, -1))
        inputs = torch.cat(features, dim=-1)
        if self.input_projection is not None:
            inputs = self.input_projection(inputs)
        return inputs if self.position_combiner is None else self.position_combiner(inputs, start)


def _masked_mean(values: Float[Tensor, "B S"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B"]:
    """Return the mean of the values under the mask; zero if there are none."""
    return values.masked_fill(~mask, 0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


class ForecastingModelConfig(BaseConfig):
    """An autoregressive model of time series (DeepAR, Salinas et al. 2020)."""

    type: Literal["forecaster"] = "forecaster"
    context_length: PositiveInt = 48
    """Values that are read before a forecast."""
    prediction_length: PositiveInt = 24
    """Values that are forecast."""
    season_length: PositiveInt = 1
    """Values of a season: for MASE and the seasonal naive forecast, not for the model."""
    lags: tuple[PositiveInt, ...] = Field(default=(1,), min_length=1)
    """Which earlier values are inputs of a step: 1 is the one before; with 24, also that of a day
    before, in hourly data."""
    covariates: CovariatesConfig = CovariatesConfig()
    """What is known about each time."""
    series_embedding: SeriesEmbeddingConfig | None = None
    """Learned vectors of the training series, for forecasts of the same series; null for none."""
    backbone: BackboneConfig = RecurrentBackboneConfig(hidden_size=40, num_layers=3)
    """Recurrent or Transformer layers."""
    input_size: PositiveInt | None = None
    """Size of a linear layer on the inputs; null: none. A Transformer needs its own size."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Positional encoding of the inputs, counted from the start of the context; null for none."""
    head: DistributionHeadConfig = GaussianHeadConfig()
    """Distribution of a value: gaussian, student-t or negative-binomial."""
    scaling: Scaling = "mean"
    """Divide by nu = `scale_offset` + mean |z| of the context (the paper's), subtract its mean and
    divide by its standard deviation (`standard`), or neither."""
    scale_offset: NonNegativeFloat = 1.0
    """Added to the mean; lower it for series whose values are far below 1."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout probability of the input of the output layer."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    @model_validator(mode="after")
    def _check_scaling(self) -> "ForecastingModelConfig":
        if self.scaling == "standard" and self.head.type == "negative-binomial":
            raise ValueError("scaling 'standard' gives negative numbers; counts need 'mean'")
        return self

    @property
    def shape(self) -> WindowShape:
        """Numbers of values of a window."""
        return WindowShape(max(self.lags), self.context_length, self.prediction_length)

    def build(self, *, source_vocab_size: int = 0, target_vocab_size: int = 0) -> ForecastingModel:
        del source_vocab_size, target_vocab_size
        num_inputs = 2 * len(self.lags) + self.covariates.size
        num_inputs += self.series_embedding.embedding_size if self.series_embedding else 0
        size, positions = self.input_size or num_inputs, self.positional_encoding
        combiner = positions.build(embedding_size=size) if positions else None
        size = combiner.output_size if combiner else size
        backbone_size: Any = self.backbone.hidden_size
        needed = positions.token_size(backbone_size) if positions else backbone_size
        owner = "the size of the Transformer" + ", less that of positions" * (
            needed < backbone_size
        )
        message = f"must be {needed}, {owner}, but is {self.input_size}"
        is_valid = self.backbone.type != "transformer" or size == backbone_size
        check(is_valid, "model.input_size", message, f"set it to {needed}")
        backbone = self.backbone.build(input_size=size)
        model = ForecastingModel(
            backbone,
            self.head.build(input_size=backbone.output_size),
            input_projection=nn.Linear(num_inputs, self.input_size) if self.input_size else None,
            position_combiner=combiner,
            series_embedding=self.series_embedding.build() if self.series_embedding else None,
            lags=self.lags,
            shape=self.shape,
            scaling=self.scaling,
            scale_offset=self.scale_offset,
            dropout=self.dropout,
        )
        self.init.initialize(model)
        return model
