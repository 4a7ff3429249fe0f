"""Built-in time series: generated families with a known predictive distribution, and a real one.

A process draws the hidden parameters of a series, then samples paths that continue any history; the
series itself is such a path. Invariant: the same name, split, seed and index give the same series.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.data.series.series import Numbers, Series, SeriesFileConfig, TimeGrid
from heedful.data.sources import SyntheticConfig
from heedful.data.synthetic.corpus import hash_text
from heedful.errors import DataError, check_choice

_HOUR, _DAY = 3600, 86_400
_START = 1_577_836_800  # Wednesday, 1 January 2020


class SeriesParameters(NamedTuple):
    """The hidden parameters of a generated series."""

    level: float
    amplitude: float
    phase: float
    noise: float


class SeriesProcess(ABC):
    """Series of one kind, each with parameters of its own."""

    name: str
    description: str
    season_length: int
    grid: TimeGrid

    @abstractmethod
    def draw_parameters(self, rng: Generator) -> SeriesParameters:
        """Draw the parameters of a series."""

    @abstractmethod
    def sample_paths(
        self, parameters: SeriesParameters, history: Numbers, shape: tuple[int, int], rng: Generator
    ) -> Numbers:
        """Sample continuations of a history, (paths, steps): the true predictive distribution."""

    def generate(self, rng: Generator, length: int) -> tuple[SeriesParameters, Numbers]:
        """Draw the parameters of a series and its values."""
        parameters = self.draw_parameters(rng)
        return parameters, self.sample_paths(parameters, np.empty(0), (1, length), rng)[0]


class SeasonalProcess(SeriesProcess):
    """Level, daily sine wave, linear trend and Gaussian noise, hourly."""

    name = "seasonal"
    description = "hourly: level, trend, a daily wave, Gaussian noise"
    season_length = 24
    grid = TimeGrid("seconds", _HOUR, _START, precision="h")
    trend = 0.0005
    """Growth per hour, relative to the level."""

    @override
    def draw_parameters(self, rng: Generator) -> SeriesParameters:
        level = float(np.exp(rng.uniform(np.log(10), np.log(1000))))
        amplitude, phase, noise = rng.uniform([0.2, -0.5, 0.05], [0.6, 0.5, 0.15])
        return SeriesParameters(level, amplitude, phase, noise)

    @override
    def sample_paths(
        self, parameters: SeriesParameters, history: Numbers, shape: tuple[int, int], rng: Generator
    ) -> Numbers:
        level, amplitude, phase, noise = parameters
        times = len(history) + np.arange(shape[1])
        wave = amplitude * np.sin(2 * np.pi * times / 24 + phase)
        means = level * (1 + self.trend * times + wave)
        return means + level * noise * rng.standard_normal(shape)


class CountProcess(SeriesProcess):
    """Negative binomial counts around a random level, with a weekly pattern, daily."""

    name = "counts"
    description = "daily: negative binomial counts, fewer at weekends"
    season_length = 7
    grid = TimeGrid("seconds", _DAY, _START, precision="D")
    dispersion = 0.1
    """alpha: the variance is mu + alpha mu^2."""

    @override
    def draw_parameters(self, rng: Generator) -> SeriesParameters:
        level = float(np.exp(rng.uniform(np.log(2), np.log(200))))
        return SeriesParameters(level, float(rng.uniform(0.3, 0.8)), 0.0, self.dispersion)

    @override
    def sample_paths(
        self, parameters: SeriesParameters, history: Numbers, shape: tuple[int, int], rng: Generator
    ) -> Numbers:
        days = len(history) + np.arange(shape[1])
        is_weekend = (days + 2) % 7 >= 5  # the first day is a Wednesday
        means = parameters.level * np.where(is_weekend, parameters.amplitude, 1.0)
        concentration = 1 / parameters.noise
        rates = rng.gamma(concentration, means / concentration, shape)
        return rng.poisson(rates).astype(np.float64)


class HeavyTailedProcess(SeriesProcess):
    """z_t = c + phi (z_(t-1) - c) + s e_t, e_t of a Student-t distribution, daily."""

    name = "heavy-tailed"
    description = "daily: AR(1) around a level, with Student-t shocks"
    season_length = 1
    grid = TimeGrid("seconds", _DAY, _START, precision="D")
    degrees_of_freedom = 4.0

    @override
    def draw_parameters(self, rng: Generator) -> SeriesParameters:
        level, phi = rng.uniform([5, 0.5], [50, 0.8])
        return SeriesParameters(level, phi, 0.0, 0.1 * level)

    @override
    def sample_paths(
        self, parameters: SeriesParameters, history: Numbers, shape: tuple[int, int], rng: Generator
    ) -> Numbers:
        level, phi, _, scale = parameters
        shocks = scale * rng.standard_t(self.degrees_of_freedom, shape)
        deviation = np.full(shape[0], history[-1] - level if len(history) else 0.0)
        paths = np.empty(shape)
        for step in range(shape[1]):
            deviation = phi * deviation + shocks[:, step]
            paths[:, step] = level + deviation
        return paths


SERIES_PROCESSES: dict[str, SeriesProcess] = {
    process.name: process for process in (SeasonalProcess(), CountProcess(), HeavyTailedProcess())
}


class RealSeries(NamedTuple):
    """A real series that comes with the package; `held_out` values at its end are test data."""

    file: str
    description: str
    held_out: int


REAL_SERIES = {
    "el-nino": RealSeries(
        "el-nino.csv", "monthly: sea surface temperature of the region Nino 1+2, 1950-2010", 120
    )
}


class BuiltInSeriesConfig(SyntheticConfig):
    """Generated series, or a real one that comes with heedful."""

    default_sizes: ClassVar[Mapping[str, int]] = {"train": 100, "test": 100}
    type: Literal["built-in-series"] = "built-in-series"
    num_examples: PositiveInt = 100
    """Number of generated series."""
    length: int = Field(default=400, ge=2, le=10**7)
    """Values of a generated series."""

    @override
    @classmethod
    def corpus_names(cls) -> Sequence[str]:
        return [*SERIES_PROCESSES, *REAL_SERIES]

    @override
    def stream(self) -> Iterator[Series]:
        names = self.corpus_names()
        check_choice(self.name, names, "built-in series", location="data", error=DataError)
        splits = ("train", "dev", "test")
        check_choice(self.split, splits, "split", location=self.name, error=DataError)
        if self.name in REAL_SERIES:
            yield read_real_series(self.name, has_test_part=self.split != "train")
            return
        process = SERIES_PROCESSES[self.name]
        for index in range(self.num_examples):
            _, values = process.generate(self.generator(index), self.length)
            yield Series(f"{self.name}-{index + 1}", values, process.grid, location=self.describe())

    def generator(self, index: int) -> Generator:
        """Return the random numbers of a series."""
        return np.random.default_rng(hash_text(f"{self.name}/{self.split}/{self.seed}/{index}"))

    @override
    def describe(self) -> str:
        size = f", {self.num_examples} series" if self.name in SERIES_PROCESSES else ""
        return f"built-in {self.name}, {self.split}{size}, seed {self.seed}"


def read_real_series(name: str, *, has_test_part: bool) -> Series:
    """Read a series that comes with the package; training data end before the test part."""
    real = REAL_SERIES[name]
    folder = resources.files("heedful.data.synthetic")
    with resources.as_file(folder / "real_series" / real.file) as path:
        (series,) = SeriesFileConfig(path=str(path)).read()
    series = series._replace(id=name, location=f"built-in {name}")
    if has_test_part:
        return series
    return series._replace(values=series.values[: -real.held_out])
