"""The catalogue: recipes by name, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, PositiveInt, model_validator

from heedful.config import (
    BaseConfig,
    Settings,
    parse_override,
    read_settings,
    read_yaml,
    validate_settings,
)
from heedful.data.filtering import FilterConfig
from heedful.data.mixing import MixtureConfig
from heedful.data.sharded_dataset import PreparedDataConfig
from heedful.data.sources import (
    JSONLConfig,
    ParallelFilesConfig,
    SyntheticPairsConfig,
    SyntheticTextConfig,
    TextFilesConfig,
    TSVConfig,
)
from heedful.data.token_stream import LMBatchingConfig
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError, choices_hint, did_you_mean
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.masked_language_model import MaskedLanguageModelConfig
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.tasks.registry import ModelConfig
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer_pair import (
    SeparateTokenizersConfig,
    SharedTokenizerConfig,
    TokenizersConfig,
)
from heedful.training import check_objective_supported
from heedful.training.config import TrainingConfig

# The schema of a recipe: every setting there is.


class RecipeInfo(BaseConfig):
    """Where a recipe comes from and what to expect of it."""

    summary: str = ""
    """What the system is, in one line."""
    paper: str = ""
    """Who described it, and where."""
    expected: str = ""
    """The score it reaches, on what, at what cost."""


EvalDataConfig = Annotated[
    ParallelFilesConfig
    | TSVConfig
    | JSONLConfig
    | SyntheticPairsConfig
    | TextFilesConfig
    | SyntheticTextConfig,
    Field(discriminator="type"),
]


TrainDataConfig = Annotated[
    ParallelFilesConfig
    | TSVConfig
    | JSONLConfig
    | SyntheticPairsConfig
    | MixtureConfig
    | TextFilesConfig
    | SyntheticTextConfig
    | PreparedDataConfig,
    Field(discriminator="type"),
]


class DataConfig(BaseConfig):
    """What is learned from: pairs of texts, or, for language models, running text."""

    train: TrainDataConfig | None = None
    """What the model learns from."""
    dev: EvalDataConfig | None = None
    """What it is validated on; if not given, some of what there is to learn from is held out."""
    test: EvalDataConfig | None = None
    """What `heedful evaluate` measures it on when given no files."""
    filtering: FilterConfig = FilterConfig()
    """Which pairs are left out."""
    lm_batching: LMBatchingConfig = LMBatchingConfig()
    """How running text is read; pairs are grouped by `training.batching`."""
    max_in_memory_examples: PositiveInt = 1_000_000
    """Most pairs, or lines of running text, held in memory; more are cut into files, once."""
    max_tokenizer_lines: PositiveInt = 1_000_000
    """Most pairs or lines, drawn by lot, that tokens are learned from where data lies in files."""


class Recipe(BaseConfig):
    """A whole experiment."""

    info: RecipeInfo = RecipeInfo()
    """Where it comes from."""
    data: DataConfig = DataConfig()
    """What is learned from."""
    tokenizers: TokenizersConfig = SeparateTokenizersConfig(
        source=SubwordTokenizerConfig(), target=SubwordTokenizerConfig()
    )
    """How text becomes tokens."""
    model: ModelConfig = EncoderDecoderConfig()
    """What learns."""
    training: TrainingConfig = TrainingConfig()
    """How it learns."""
    decoding: DecodingConfig = DecodingConfig()
    """How it is asked."""

    @property
    def is_monolingual(self) -> bool:
        """Whether the model learns from running text, and not from pairs."""
        return isinstance(self.model, LanguageModelConfig | MaskedLanguageModelConfig)

    @model_validator(mode="after")
    def _check_data_type(self) -> Recipe:
        for name in ("train", "dev", "test"):
            source = getattr(self.data, name)
            is_text = isinstance(source, TextFilesConfig | SyntheticTextConfig)
            is_either = source is None or isinstance(source, PreparedDataConfig)
            if not is_either and is_text != self.is_monolingual:
                raise _wrong_data_error(name, source.type, self)
        return self

    @model_validator(mode="after")
    def _check_shared_tokenizer(self) -> Recipe:
        if self.is_monolingual and not isinstance(self.tokenizers, SharedTokenizerConfig):
            raise ConfigError(
                "tokenizers.type",
                f"a {self.model.type} reads one kind of text, but this is '{self.tokenizers.type}'",
                "set `text: {type: shared, tokenizer: {type: character}}`, or another tokenizer",
            )
        return self

    @model_validator(mode="after")
    def _check_scheduled_sampling(self) -> Recipe:
        sampling = self.training.scheduled_sampling
        is_masked = isinstance(self.model, MaskedLanguageModelConfig)
        if is_masked and not isinstance(sampling, TeacherForcingConfig):
            raise ConfigError(
                "training.scheduled_sampling.type",
                f"a {self.model.type} goes on from no token of its own, so '{sampling.type}' "
                "has no meaning",
                "leave training.scheduled_sampling out",
            )
        return self

    @model_validator(mode="after")
    def _check_subword_regularization(self) -> Recipe:
        tokenizer = (
            self.tokenizers.tokenizer
            if isinstance(self.tokenizers, SharedTokenizerConfig)
            else None
        )
        is_cut_anew = (
            isinstance(tokenizer, SubwordTokenizerConfig)
            and tokenizer.subword_regularization is not None
        )
        if self.is_monolingual and is_cut_anew:
            raise ConfigError(
                "tokenizers.tokenizer.subword_regularization",
                "running text is cut once: only pairs of texts are cut anew in every epoch",
                "leave it out",
            )
        return self

    @model_validator(mode="after")
    def _check_objective(self) -> Recipe:
        training = self.training
        if self.is_monolingual:
            check_objective_supported(training.objective, self.model.type)
        training.objective.build(
            label_smoothing=training.label_smoothing, scheduled_sampling=training.scheduled_sampling
        )
        return self


def _wrong_data_error(name: str, data_type: str, recipe: Recipe) -> ConfigError:
    wanted, kinds = "pairs of texts", ["synthetic", "files", "jsonl", "tsv"]
    only_learned_from = ["several", "tokens"]
    if recipe.is_monolingual:
        wanted, kinds, only_learned_from = "running text", ["synthetic-text", "text"], ["tokens"]
    return ConfigError(
        f"data.{name}.type",
        f"the model (type: {recipe.model.type}) learns from {wanted}, not from '{data_type}'",
        choices_hint([*kinds, *only_learned_from] if name == "train" else kinds),
    )


class RecipeGroup(NamedTuple):
    """A recipe, and the same system at other sizes: `form` stands for the recipe `name-form`."""

    name: str
    variants: tuple[str, ...]


def recipe_names() -> list[str]:
    """The names of the recipes that come with heedful."""
    files = resources.files("heedful.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def recipe_groups() -> list[RecipeGroup]:
    """The recipes by system: first those of one size, then those that have other forms."""
    names = recipe_names()
    forms = {
        name: [each.removeprefix(f"{name}-") for each in names if each.startswith(f"{name}-")]
        for name in names
    }
    others = {f"{name}-{variant}" for name in names for variant in forms[name]}
    found = [RecipeGroup(name, tuple(forms[name])) for name in names if name not in others]
    return sorted(found, key=lambda system: bool(system.variants))


def read_recipe_text(name: str) -> str:
    """The YAML of a recipe that comes with heedful."""
    return resources.files("heedful.recipes").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Find a recipe by name or file, check it, and apply `a.b=c` overrides."""
    settings = _settings(name_or_path)
    changes = [parse_override(text) for text in overrides]
    return validate_settings(Recipe, settings, location=name_or_path, overrides=changes)


def _settings(name_or_path: str) -> Settings:
    if name_or_path.endswith((".yaml", ".yml")):
        return read_settings(Path(name_or_path))
    names = recipe_names()
    if name_or_path in names:
        return read_yaml(read_recipe_text(name_or_path), location=name_or_path)
    raise ConfigError(
        name_or_path,
        f"no recipe has this name{did_you_mean(name_or_path, names)}",
        f"{choices_hint(names)}; or give a file that ends in .yaml",
    )
