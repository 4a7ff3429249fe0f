"""The readers, as a configuration names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.config.choice import assuming
from heedful.readers.recurrent import RecurrentReaderConfig
from heedful.readers.transformer import TransformerReaderConfig

ReaderConfig = Annotated[
    RecurrentReaderConfig | TransformerReaderConfig,
    Field(discriminator="kind"),
    assuming("recurrent"),
]
