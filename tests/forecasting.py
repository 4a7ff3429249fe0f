"""Small series, forecasters and recipes for tests."""

from pathlib import Path

import numpy as np
import torch
import yaml

from heedful.data.series.batching import SeriesDataset
from heedful.data.series.series import Series, TimeGrid
from heedful.tasks.forecasting.model import ForecastingModelConfig

BACKBONES = {
    "lstm": {"backbone": {"type": "recurrent", "cell": {"type": "lstm"}, "hidden_size": 6}},
    "lstm, series embedding": {
        "backbone": {"type": "recurrent", "cell": {"type": "lstm"}, "hidden_size": 6},
        "series_embedding": {"embedding_size": 4, "max_series": 5},
    },
    "gru": {"backbone": {"type": "recurrent", "cell": {"type": "gru"}, "hidden_size": 6}},
    "transformer": {
        "backbone": {
            "type": "transformer",
            "hidden_size": 8,
            "num_layers": 2,
            "attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}},
            "dropout": 0.0,
        },
        "input_size": 8,
        "positional_encoding": {"type": "sinusoidal"},
    },
}
SIZES = {
    "type": "forecaster",
    "context_length": 6,
    "prediction_length": 3,
    "covariates": {"calendar": ["hour-of-day"]},
    "lags": [1, 4],
}
HEADS = ("gaussian", "student-t", "negative-binomial")
HOURLY = TimeGrid("seconds", 3600, 0, precision="m")


def small_config(backbone: str = "lstm", **settings) -> ForecastingModelConfig:
    """Return a forecaster of 3 values from 6."""
    return ForecastingModelConfig.model_validate({**SIZES, **BACKBONES[backbone], **settings})


def small_model(config: ForecastingModelConfig, seed: int = 0):
    torch.manual_seed(seed)
    return config.build().eval().double()


def count_series(count: int = 3, length: int = 20, seed: int = 0) -> list[Series]:
    """Return series of small counts, with a value missing in each."""
    rng = np.random.default_rng(seed)
    series = []
    for index in range(count):
        values = rng.poisson(5, length + index).astype(float)
        values[length - 5] = np.nan
        series.append(Series(f"s{index}", values, HOURLY))
    return series


def collate(config: ForecastingModelConfig, series: list[Series]):
    """Return the last window of each series, in float64."""
    dataset = SeriesDataset(series, config.shape, config.covariates)
    batch = dataset.collate(dataset.last_windows(1))
    return batch._replace(values=batch.values.double(), covariates=batch.covariates.double())


def write_series_recipe(
    folder: Path, backbone: str = "lstm", *, steps: int = 20, every: int = 10
) -> Path:
    """Write series and a recipe that trains on them; return the path of the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{t},{5 + t % 4},{t * t % 7}" for t in range(60)]
    (folder / "series.csv").write_text("\n".join(["time,a,b", *rows]) + "\n")
    model = {**SIZES, **BACKBONES[backbone], "covariates": {}, "dropout": 0.2}
    recipe = {
        "info": {"summary": "two series"},
        "data": {
            "train": {"type": "series", "path": str(folder / "series.csv")},
            "series_batching": {"batch_size": 4, "batches_per_epoch": 7},
        },
        "tokenizers": {"type": "none"},
        "model": model,
        "training": {"max_steps": steps, "validate_every": every},
    }
    path = folder / "series.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path
