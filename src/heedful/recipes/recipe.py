"""Recipes: the configuration of a whole experiment, by name or from a YAML file.

The unions of models and data sources come from the registry of tasks, which also check that the
sections of a recipe fit together.
"""

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from importlib import resources
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import ConfigDict, Field, PositiveInt, model_validator

from heedful.config import (
    BaseConfig,
    LocatedSettings,
    Settings,
    SettingsArgument,
    flatten_settings,
    read_settings,
    read_yaml,
    to_overrides,
    validate_settings,
    wrong_type_error,
)
from heedful.config.base import type_of, with_default_type
from heedful.data.images.labeled_images import LabeledImageBatchingConfig
from heedful.data.series.batching import SeriesBatchingConfig
from heedful.data.text.filtering import FilterConfig
from heedful.data.text.token_stream import LMBatchingConfig
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError, check, choices_hint, did_you_mean
from heedful.evaluation.registry import MetricSpec
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.tasks.registry import all_file_options, all_tasks, task_of_model
from heedful.tasks.task import Task
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig, TokenizersConfig
from heedful.training.config import TrainingConfig
from heedful.training.state import TrainingLimits


class RecipeInfo(BaseConfig):
    """Origin and expected score of a recipe."""

    name: str = ""
    """Name of the recipe, or of its file."""
    summary: str = ""
    """The system in one line."""
    paper: str = ""
    """Authors, year and title."""
    expected: str = ""
    """Score, data and cost."""


DEFAULT_RECIPE = "default"
_EXTENDS = "extends"
_MAX_BASES = 10
_TASKS = all_tasks()
_DEFAULT_MODEL = _TASKS[0].model_configs[0]


def _union(configs: Iterable[type[BaseConfig]]) -> Any:
    """Return the discriminated union of configs, each once."""
    return Annotated[reduce(or_, dict.fromkeys(configs)), Field(discriminator="type")]


_SOURCES = [config for task in _TASKS for config in task.data.source_configs]
_TRAIN_SOURCES = [config for task in _TASKS for config in task.data.train_source_configs]

if TYPE_CHECKING:  # the unions are known only at run time
    EvalDataConfig = Any
    TrainDataConfig = Any
    ModelConfig = Any
else:
    EvalDataConfig = _union(_SOURCES)
    TrainDataConfig = _union([*_SOURCES, *_TRAIN_SOURCES])
    ModelConfig = Annotated[
        _union(config for task in _TASKS for config in task.model_configs),
        with_default_type(str(type_of(_DEFAULT_MODEL))),
    ]


class DataConfig(BaseConfig):
    """Training, dev and test data: pairs of texts, running text, time series or images."""

    train: TrainDataConfig | None = None
    """Training data."""
    dev: EvalDataConfig | None = None
    """Dev data; if not given, some of the training data is held out."""
    test: EvalDataConfig | None = None
    """What `heedful evaluate` and `heedful compare` use when given no files."""
    additional_tests: dict[str, EvalDataConfig] = Field(default={})
    """Further test sets by name: `heedful compare` has a column of the main metric for each."""
    filtering: FilterConfig = FilterConfig()
    """Which pairs are dropped."""
    lm_batching: Annotated[LMBatchingConfig, "batching"] = LMBatchingConfig()
    """Batches of running text; those of pairs are set by `training.batching`."""
    series_batching: Annotated[SeriesBatchingConfig, "batching"] = SeriesBatchingConfig()
    """Batches of time series."""
    labeled_images: Annotated[LabeledImageBatchingConfig, "batching"] = LabeledImageBatchingConfig()
    """Batches of labeled images, and what is added to them."""
    max_in_memory_examples: PositiveInt = Field(default=1_000_000, le=10**12)
    """Larger data, in pairs or lines, is tokenized once into files of the run folder."""
    max_tokenizer_lines: PositiveInt = Field(default=1_000_000, le=10**12)
    """Pairs or lines that tokenizers are trained on, sampled from data that lies in files."""


class EvaluationConfig(BaseConfig):
    """Settings of `heedful evaluate` and `heedful compare`."""

    metrics: tuple[str, ...] = ()
    """Names of metrics, the main one first; empty for those of the task."""


def _add_extends(schema: dict[str, Any]) -> None:
    """Describe the key that files may have, to editors."""
    description = "Recipe or file whose settings this file changes."
    schema["properties"][_EXTENDS] = {"type": "string", "description": description}


class Recipe(BaseConfig):
    """The configuration of a whole experiment."""

    model_config = ConfigDict(json_schema_extra=_add_extends)

    info: RecipeInfo = RecipeInfo()
    """Where it comes from."""
    data: DataConfig = DataConfig()
    """Training, dev and test data."""
    tokenizers: TokenizersConfig = SeparateTokenizersConfig(
        source=SubwordTokenizerConfig(), target=SubwordTokenizerConfig()
    )
    """How texts become tokens."""
    model: ModelConfig = _DEFAULT_MODEL()
    """The model; its `type` decides the task."""
    training: TrainingConfig = TrainingConfig()
    """Objective, optimizer, validation and limits."""
    decoding: DecodingConfig = DecodingConfig()
    """Search settings of translation models."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Metrics of the test set."""

    @property
    def task(self) -> Task:
        """The task that the model is for."""
        return task_of_model(self.model)

    @property
    def pretrained_encoder(self) -> PretrainedEncoderConfig | None:
        """The encoder of the model, if it is pretrained."""
        encoder = getattr(self.model, "encoder", None)
        return encoder if isinstance(encoder, PretrainedEncoderConfig) else None

    @property
    def best_model_metric(self) -> MetricSpec:
        """The metric that selects the best checkpoint."""
        return self.task.evaluation.metrics[self.training.metric_for_best_model]

    @property
    def limits(self) -> TrainingLimits:
        """When training stops."""
        higher_is_better = self.best_model_metric.higher_is_better
        return TrainingLimits(self.training, higher_is_better=higher_is_better)

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        self.task.check_config(self)
        return self


def recipe_names() -> list[str]:
    """Return the names of the bundled recipes."""
    files = resources.files("heedful.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def recipe_groups() -> list[tuple[str, tuple[str, ...]]]:
    """Return the bundled recipes with their variants; those without variants come first.

    The variant `small` of `gpt` is the recipe `gpt-small`; both have the same type of model.
    """
    variants: dict[str, list[str]] = {}
    types = {name: _model_type(name) for name in recipe_names()}
    for name, model_type in types.items():  # sorted: a recipe comes before its variants
        similar = (other for other in variants if name.startswith(f"{other}-"))
        group = next((other for other in similar if types[other] == model_type), None)
        if group is None:
            variants[name] = []
        else:
            variants[group].append(name.removeprefix(f"{group}-"))
    groups = [(name, tuple(names)) for name, names in variants.items()]
    return sorted(groups, key=lambda group: bool(group[1]))


def _model_type(name: str) -> Any:
    """Return the type of the model that a bundled recipe, or one that it extends, names."""
    models = (layer.settings.get("model", {}) for layer in _read_layers(name))
    return next((model["type"] for model in models if "type" in model), None)


def read_recipe_text(name: str) -> str:
    """Return the YAML of a bundled recipe."""
    return resources.files("heedful.recipes").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


RecipeArgument = str | Path | Mapping[str, Any] | Recipe
"""A recipe: its name, its file, its settings or itself."""


def load_recipe(recipe: RecipeArgument, settings: SettingsArgument = ()) -> Recipe:
    """Return a recipe, changed by `settings`.

    Its key `extends` names another recipe, or a file relative to its own, that it changes. What
    `info` says of training data ends where other data replaces them.
    """
    if isinstance(recipe, Recipe) and not settings:
        return recipe
    if isinstance(recipe, str | Path):
        layers = _read_layers(str(recipe))
        name = {"info": {"name": Path(recipe).stem}}
        layers.insert(0, LocatedSettings(layers[-1].location, name))
    else:
        values = recipe.model_dump(mode="json") if isinstance(recipe, Recipe) else dict(recipe)
        layers = _add_bases("recipe", values)
    *bases, (location, values) = layers
    overrides = to_overrides(settings)
    changes = {".".join(path): value for path, value in overrides}
    config = validate_settings(Recipe, values, location=location, overrides=overrides, bases=bases)
    return _describe_new_data(config, [*(layer.settings for layer in layers), changes])


def _describe_new_data(recipe: Recipe, layers: Iterable[Settings]) -> Recipe:
    """Replace summary and expected score that were written for other training data."""
    stated = [{name for name, value in flatten_settings(layer) if value} for layer in layers]
    is_data = [any(f"{name}.".startswith("data.train.") for name in names) for names in stated]
    if recipe.data.train is None or not any(is_data):
        return recipe
    last = max(index for index, has_data in enumerate(is_data) if has_data)
    current = {name for names in stated[last:] for name in names}
    stale: dict[str, str] = {}
    if recipe.info.expected and "info.expected" not in current:
        stale["expected"] = ""
    if sum(is_data) > 1 and "info.summary" not in current:
        stale["summary"] = f"{recipe.info.name or 'model'} with {recipe.data.train.describe()}"
    info = recipe.info.model_copy(update=stale)
    return recipe.model_copy(update={"info": info}) if stale else recipe


def _read_layers(name_or_path: str, extended_by: Sequence[str] = ()) -> list[LocatedSettings]:
    """Read a recipe after those that it extends."""
    return _add_bases(name_or_path, _read_recipe_settings(name_or_path, extended_by), extended_by)


def _add_bases(
    name_or_path: str, settings: Settings, extended_by: Sequence[str] = ()
) -> list[LocatedSettings]:
    base = settings.pop(_EXTENDS, None)
    if base is None:
        return [LocatedSettings(name_or_path, settings)]
    location = f"{name_or_path}: {_EXTENDS}"
    if not isinstance(base, str):
        raise wrong_type_error("a name", base, location=location)
    if _is_file(base):
        base = str(Path(name_or_path).parent / base)
    chain = [*extended_by, name_or_path]
    is_cycle = os.path.normpath(base) in map(os.path.normpath, chain)
    message = f"a recipe extends itself: {' -> '.join([*chain, base])}"
    check(not is_cycle, location, message, f"remove `{_EXTENDS}` from one of them")
    message = f"more than {_MAX_BASES} recipes extend one another"
    check(len(chain) <= _MAX_BASES, location, message, "write their settings into fewer files")
    return [*_read_layers(base, chain), LocatedSettings(name_or_path, settings)]


def _is_file(name_or_path: str) -> bool:
    return name_or_path.endswith((".yaml", ".yml"))


@cache  # some commands and most tests read every recipe
def _read_bundled_settings(name: str) -> Settings:
    return read_yaml(read_recipe_text(name), location=name)


def _read_recipe_settings(name_or_path: str, extended_by: Sequence[str]) -> Settings:
    if _is_file(name_or_path):
        return read_settings(Path(name_or_path))
    names = recipe_names()
    if name_or_path in names:
        return copy.deepcopy(_read_bundled_settings(name_or_path))
    location = f"{extended_by[-1]}: {_EXTENDS}" if extended_by else name_or_path
    message = f"no recipe is called {name_or_path!r}{did_you_mean(name_or_path, names)}"
    choices = choices_hint(names, name=name_or_path, listing="`heedful recipes` lists all")
    hint = f"{choices}; or give a file that ends in .yaml"
    if Path(name_or_path).is_file():
        message = f"a recipe ends in .yaml, and {name_or_path!r} does not"
        flags = [options.usage() for options in all_file_options()]
        hint = f"data are given with options: {', '.join(flags[:-1])} or {flags[-1]}"
    raise ConfigError(location, message, hint)
