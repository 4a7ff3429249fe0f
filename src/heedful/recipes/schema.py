"""The schema of a recipe: every setting there is."""

from __future__ import annotations

from heedful.config import Choice
from heedful.data.selection import SelectionConfig
from heedful.data.sources import PairSourceConfig
from heedful.tasks.config import ModelConfig
from heedful.tasks.transduction import TransducerConfig
from heedful.text.config import SeparateTexts, SubwordConfig, TextConfig
from heedful.training.config import TrainingConfig
from heedful.translator import DecodingConfig


class AboutConfig(Choice):
    """Where a recipe comes from and what to expect of it."""

    summary: str = ""
    """What the system is, in one line."""
    paper: str = ""
    """Who described it, and where."""
    expected: str = ""
    """The score it reaches, on what, at what cost."""


class DataConfig(Choice):
    """What is learned from."""

    train: PairSourceConfig | None = None
    """What the model learns from."""
    dev: PairSourceConfig | None = None
    """What it is validated on; if not given, some of the training pairs are held out."""
    test: PairSourceConfig | None = None
    """What `heedful evaluate` measures it on when given no files."""
    selection: SelectionConfig = SelectionConfig()
    """Which pairs are left out."""


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
