"""The encoders, as a configuration names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.config.choice import assuming
from heedful.encoders.convolutional import ConvolutionalEncoderConfig
from heedful.encoders.dilated import DilatedEncoderConfig
from heedful.encoders.recurrent import RecurrentEncoderConfig
from heedful.encoders.transformer import TransformerEncoderConfig

EncoderConfig = Annotated[
    RecurrentEncoderConfig
    | TransformerEncoderConfig
    | ConvolutionalEncoderConfig
    | DilatedEncoderConfig,
    Field(discriminator="kind"),
    assuming("recurrent"),
]
