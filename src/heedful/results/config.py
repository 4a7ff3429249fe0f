"""What a result is: data, systems, metrics, published values and claims, as its YAML file has them.

Invariant: an unknown key is an error, and so is a name that the file does not define.
"""

from importlib import resources
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from heedful.config import BaseConfig, read_yaml, validate_settings
from heedful.errors import ConfigError, check, choices_hint, did_you_mean

_PACKAGE = "heedful.results"
Reading = Literal["paper", "copy", "readme", "memory", "lectures"]
"""Where a published value is from: the paper, a copy of its table, a README that quotes it, or
the lectures; "memory" is not checked."""
Comparability = Literal["same", "other split", "other features", "other metric", "miniature"]
"""Whether test set, inputs and metric are those of the published value."""


class ResultDataConfig(BaseConfig):
    """The files of a result."""

    folder: str
    """Folder of the files in the data folder."""
    files: dict[str, str]
    """SHA-256 of each file."""
    get: str
    """Where the files come from."""
    license: str
    """License of the data."""


class SplitOffConfig(BaseConfig):
    """Hold out a part of the training files for validation, chosen by a hash of the key."""

    do: Literal["split-off"] = "split-off"
    files: list[str]
    """Files whose lines belong together."""
    train: list[str]
    """Names of the files of what is kept."""
    dev: list[str]
    """Names of the files of what is held out."""
    share: float = Field(gt=0, lt=1)
    """Share of the keys that is held out."""
    key_column: PositiveInt | None = None
    """Column of the key; by default the whole line, or the lines of a block."""
    blocks: bool = False
    """Whether examples are blocks of lines, separated by empty lines."""
    seed: int = 0
    """Another seed holds out other keys."""


class RewriteConfig(BaseConfig):
    """Write a table with columns made from those of another."""

    do: Literal["rewrite"] = "rewrite"
    file: str
    """File with columns separated by tabs."""
    to: str
    """Name of the file that is written."""
    columns: list[str]
    """Columns: `{1}` is the first column, `{1:letters}` its letters and `{3:features}` what
    semicolons separate, both with blanks between them."""


class SplitTextConfig(BaseConfig):
    """Split a text after a share of its characters."""

    do: Literal["split-text"] = "split-text"
    file: str
    """File of the text."""
    to: tuple[str, str]
    """Names of the two parts."""
    share: float = Field(gt=0, lt=1)
    """Share of the first part."""


class LongSeriesConfig(BaseConfig):
    """Write rows of `id,value,value,...` as a table of id, time and value."""

    do: Literal["long-series"] = "long-series"
    file: str
    """File with a series in each row."""
    to: str
    """Name of the file that is written."""
    without_last: int = Field(default=0, ge=0)
    """Values at the end that are left out."""


class ReferencesConfig(BaseConfig):
    """Write a pair for each text of an array, from JSON lines."""

    do: Literal["references"] = "references"
    file: str
    """File of JSON lines."""
    to: str
    """Name of the file that is written."""
    source: str
    """Key of the source texts, an array of sentences."""
    targets: str
    """Key of the array of references."""


PreparationConfig = Annotated[
    SplitOffConfig | RewriteConfig | SplitTextConfig | LongSeriesConfig | ReferencesConfig,
    Field(discriminator="do"),
]


class ResultSystemConfig(BaseConfig):
    """A system: a recipe with changes, or an ensemble of the seeds of another system."""

    recipe: str = ""
    """Name of the recipe."""
    settings: dict[str, Any] = Field(default={})
    """Settings of this system, as after `--set`."""
    after: str | None = None
    """System whose run with the same seed it starts from."""
    ensemble_of: str | None = None
    """System whose seeds form this ensemble."""
    aligner: dict[str, Any] | None = None
    """A word aligner, instead of a recipe."""
    budget: str | None = None
    """Limit of its trainings, if not that of the result."""


class ResultMetricConfig(BaseConfig):
    """A metric of the test set."""

    metric: str = ""
    """Name of the metric in `heedful evaluate`; by default that of the column."""
    complement: bool = False
    """Whether the column is 100 minus the metric."""
    references: str | None = None
    """File of the references that outputs are compared with, instead of those of the test set."""
    test: str | None = None
    """Name in `data.additional_tests` of another test set."""
    words: tuple[int, int] | None = None
    """Least and largest number of words of the sources that are scored."""
    outputs: Literal["as they are", "moses lower case"] = "as they are"
    """How outputs are written before they are compared."""
    window_loss: PositiveInt | None = None
    """Number of batches of 64 random windows, each scored from its first token on."""


class PublishedConfig(BaseConfig):
    """A published row."""

    system: str
    """Authors, year and system."""
    values: dict[str, float]
    """Value by metric."""
    source: str
    """Where it stands."""
    read: Reading
    """Where it is from."""
    comparable: Comparability = "same"
    """What is the same."""
    beside: str | None = None
    """System that it is compared with; null for rows that are only quoted."""


class ClaimConfig(BaseConfig):
    """A claim about systems or numbers."""

    text: str
    """The claim."""
    left: str | list[str]
    """System, or several of which each must fulfil it."""
    op: Literal["<", ">", "<=", ">="]
    """Relation."""
    right: float | str | list[str]
    """Number, system or systems."""
    metric: str | None = None
    """Metric; by default the first."""
    margin: float = Field(default=0, ge=0)
    """Least difference of the means."""
    asserted: bool = True
    """Whether the command fails if it does not hold; others are printed only."""


class MiniatureConfig(BaseConfig):
    """The same pipeline in seconds, for tests."""

    budget: str = "8steps"
    """Limit of each run."""
    settings: dict[str, Any] = Field(default={})
    """Settings of all systems."""
    lines: PositiveInt | None = 200
    """Lines that are kept of each file of text; null for all."""
    max_examples: PositiveInt = 40
    """Test examples that are scored."""
    systems: list[str] | None = None
    """Systems; by default all."""


class ArithmeticCellConfig(BaseConfig):
    """A number that is a product."""

    name: str
    """Name of the cell."""
    factors: list[float]
    """What is multiplied."""
    printed: float
    """The published number, with two digits."""


class ResultConfig(BaseConfig):
    """A published result and how it is reproduced."""

    title: str
    """What is measured."""
    lectures: str = ""
    """The table of the lectures that it stands for."""
    data: ResultDataConfig | None = None
    """Its files; null for built-in data."""
    prepare: list[PreparationConfig] = Field(default=[])
    """How files are prepared."""
    settings: dict[str, Any] = Field(default={})
    """Settings of all systems; `{data}` and `{prepared}` are the folders of the files."""
    systems: dict[str, ResultSystemConfig] = Field(default={})
    """Systems by name; the first is the baseline of the tests."""
    cells: list[ArithmeticCellConfig] = Field(default=[])
    """Numbers that need no training."""
    group_references: bool = False
    """Whether pairs with equal sources are one example with several references."""
    max_examples: PositiveInt | None = None
    """Test examples that are scored; all by default."""
    metrics: dict[str, ResultMetricConfig] = Field(default={})
    """Metrics by column; the first decides."""
    published: list[PublishedConfig] = Field(default=[])
    """Published rows."""
    claims: list[ClaimConfig] = Field(default=[])
    """What is claimed."""
    tolerance: float = Field(default=0, ge=0)
    """Difference from a published value, in the first metric, that is no difference."""
    seeds: list[int] = Field(default=[1, 2, 3])
    """Seeds of the runs."""
    budget: str = "1000steps"
    """Limit of each run, as of `heedful compare`."""
    minutes: float = 0
    """Estimated minutes of a run on one GPU."""
    test_is_dev: bool = False
    """Whether the test set is the dev set of the data, for want of another."""
    deviations: list[str] = Field(default=[])
    """What differs from the publication."""
    miniature: MiniatureConfig = MiniatureConfig()
    """The same in seconds."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        systems = [name for claim in self.claims for name in names_of(claim.left)]
        systems += [name for claim in self.claims for name in names_of(claim.right)]
        systems += [row.beside for row in self.published if row.beside]
        for system in self.systems.values():
            systems += [name for name in (system.after, system.ensemble_of) if name]
        metrics = [claim.metric for claim in self.claims if claim.metric]
        metrics += [name for row in self.published for name in row.values]
        for kind, names, known in (
            ("system", systems, self.systems),
            ("metric", metrics, self.metrics),
        ):
            for name in names:
                message = f"no {kind} is called {name!r}{did_you_mean(name, known)}"
                check(name in known, f"{kind}s", message, choices_hint(known))
        return self


def names_of(side: float | str | list[str]) -> list[str]:
    """Return the systems of one side of a claim."""
    if isinstance(side, list):
        return side
    return [side] if isinstance(side, str) else []


def result_names() -> list[str]:
    """Return the names of all results."""
    files = resources.files(_PACKAGE).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_result(name: str) -> ResultConfig:
    """Return the result of a name."""
    names = result_names()
    message = f"no result is called {name!r}{did_you_mean(name, names)}"
    if name not in names:
        raise ConfigError(name, message, "`heedful reproduce` lists all")
    text = resources.files(_PACKAGE).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return validate_settings(ResultConfig, read_yaml(text, location=name), location=name)
