"""The models, as a configuration names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.config.choice import assuming
from heedful.tasks.continuation import ContinuationConfig
from heedful.tasks.language_model import LanguageModelConfig
from heedful.tasks.masked_language_model import MaskedLanguageModelConfig
from heedful.tasks.transduction import TransducerConfig

ModelConfig = Annotated[
    TransducerConfig | ContinuationConfig | LanguageModelConfig | MaskedLanguageModelConfig,
    Field(discriminator="kind"),
    assuming("encoder-decoder"),
]
