"""The models, as a configuration names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.config.base import with_default_type
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.masked_language_model import MaskedLanguageModelConfig
from heedful.models.prefix_lm import PrefixLanguageModelConfig

ModelConfig = Annotated[
    EncoderDecoderConfig
    | PrefixLanguageModelConfig
    | LanguageModelConfig
    | MaskedLanguageModelConfig,
    Field(discriminator="type"),
    with_default_type("encoder-decoder"),
]
