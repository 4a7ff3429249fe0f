"""The schema of a recipe: every setting there is."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from heedful.config import Choice
from heedful.data.mixing import SeveralConfig
from heedful.data.prepared import TokensConfig
from heedful.data.running import StreamsConfig
from heedful.data.selection import SelectionConfig
from heedful.data.sources import BuiltInConfig, FilesConfig, JsonlConfig, TsvConfig
from heedful.data.text_sources import BuiltInTextConfig, TextFilesConfig
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError, choose_from
from heedful.tasks.config import ModelConfig
from heedful.tasks.language_model import LanguageModelConfig
from heedful.tasks.masked_language_model import MaskedLanguageModelConfig
from heedful.tasks.transduction import TransducerConfig
from heedful.text.config import SeparateTexts, SharedText, SubwordConfig, TextConfig
from heedful.training.config import TrainingConfig
from heedful.training.objectives import refuse_whole_outputs
from heedful.training.sampling import TeacherForcingConfig


class AboutConfig(Choice):
    """Where a recipe comes from and what to expect of it."""

    summary: str = ""
    """What the system is, in one line."""
    paper: str = ""
    """Who described it, and where."""
    expected: str = ""
    """The score it reaches, on what, at what cost."""


SourceConfig = Annotated[
    FilesConfig | TsvConfig | JsonlConfig | BuiltInConfig | TextFilesConfig | BuiltInTextConfig,
    Field(discriminator="kind"),
]


TrainingSourceConfig = Annotated[
    FilesConfig
    | TsvConfig
    | JsonlConfig
    | BuiltInConfig
    | SeveralConfig
    | TextFilesConfig
    | BuiltInTextConfig
    | TokensConfig,
    Field(discriminator="kind"),
]


class DataConfig(Choice):
    """What is learned from: pairs of texts, or, for language models, running text."""

    train: TrainingSourceConfig | None = None
    """What the model learns from."""
    dev: SourceConfig | None = None
    """What it is validated on; if not given, some of what there is to learn from is held out."""
    test: SourceConfig | None = None
    """What `heedful evaluate` measures it on when given no files."""
    selection: SelectionConfig = SelectionConfig()
    """Which pairs are left out."""
    streams: StreamsConfig = StreamsConfig()
    """How running text is read; pairs are grouped by `training.batching`."""
    in_memory: PositiveInt = 1_000_000
    """Most pairs, or lines of running text, held in memory; more are cut into files, once."""
    vocabulary_lines: PositiveInt = 1_000_000
    """Most pairs or lines, drawn by lot, that tokens are learned from where data lies in files."""


class Recipe(Choice):
    """A whole experiment."""

    about: AboutConfig = AboutConfig()
    """Where it comes from."""
    data: DataConfig = DataConfig()
    """What is learned from."""
    text: TextConfig = SeparateTexts(source=SubwordConfig(), target=SubwordConfig())
    """How text becomes tokens."""
    model: ModelConfig = TransducerConfig()
    """What learns."""
    training: TrainingConfig = TrainingConfig()
    """How it learns."""
    decoding: DecodingConfig = DecodingConfig()
    """How it is asked."""

    @property
    def is_of_text(self) -> bool:
        """Whether the model learns from running text, and not from pairs."""
        return isinstance(self.model, LanguageModelConfig | MaskedLanguageModelConfig)

    @model_validator(mode="after")
    def _has_data_of_its_kind(self) -> Recipe:
        for name in ("train", "dev", "test"):
            source = getattr(self.data, name)
            is_text = isinstance(source, TextFilesConfig | BuiltInTextConfig)
            is_either = source is None or isinstance(source, TokensConfig)
            if not is_either and is_text != self.is_of_text:
                raise _other_data(name, source.kind, self)
        return self

    @model_validator(mode="after")
    def _has_one_tokenizer_for_one_text(self) -> Recipe:
        if self.is_of_text and not isinstance(self.text, SharedText):
            raise ConfigError(
                "text.kind",
                f"a {self.model.kind} reads one kind of text, but this is '{self.text.kind}'",
                "set `text: {kind: shared, tokenizer: {kind: character}}`, or another tokenizer",
            )
        return self

    @model_validator(mode="after")
    def _says_tokens_it_could_go_on_from(self) -> Recipe:
        sampling = self.training.sampling
        is_masked = isinstance(self.model, MaskedLanguageModelConfig)
        if is_masked and not isinstance(sampling, TeacherForcingConfig):
            raise ConfigError(
                "training.sampling.kind",
                f"a {self.model.kind} goes on from no token of its own, so '{sampling.kind}' "
                "has no meaning",
                "leave training.sampling out",
            )
        return self

    @model_validator(mode="after")
    def _cuts_anew_only_pairs(self) -> Recipe:
        tokenizer = self.text.tokenizer if isinstance(self.text, SharedText) else None
        is_cut_anew = isinstance(tokenizer, SubwordConfig) and tokenizer.regularisation is not None
        if self.is_of_text and is_cut_anew:
            raise ConfigError(
                "text.tokenizer.regularisation",
                "running text is cut once: only pairs of texts are cut anew in every epoch",
                "leave it out",
            )
        return self

    @model_validator(mode="after")
    def _has_an_objective_that_can_be_built(self) -> Recipe:
        training = self.training
        if self.is_of_text:
            refuse_whole_outputs(training.objective, self.model.kind)
        training.objective.build(smoothing=training.label_smoothing, sampling=training.sampling)
        return self


def _other_data(name: str, kind: str, recipe: Recipe) -> ConfigError:
    wanted, kinds = "pairs of texts", ["built-in", "files", "jsonl", "tsv"]
    only_learned_from = ["several", "tokens"]
    if recipe.is_of_text:
        wanted, kinds, only_learned_from = "running text", ["built-in-text", "text"], ["tokens"]
    return ConfigError(
        f"data.{name}.kind",
        f"the model (kind: {recipe.model.kind}) learns from {wanted}, not from '{kind}'",
        choose_from([*kinds, *only_learned_from] if name == "train" else kinds),
    )
