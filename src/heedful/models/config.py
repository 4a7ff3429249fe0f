"""The unions of encoder and decoder configs: a new architecture is one module and one line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.config.base import with_default_type
from heedful.models.bytenet import DilatedDecoderConfig, DilatedEncoderConfig
from heedful.models.convolutional import ConvolutionalDecoderConfig, ConvolutionalEncoderConfig
from heedful.models.recurrent.decoder import RecurrentDecoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.transformer import TransformerDecoderConfig, TransformerEncoderConfig

EncoderConfig = Annotated[
    RecurrentEncoderConfig
    | TransformerEncoderConfig
    | ConvolutionalEncoderConfig
    | DilatedEncoderConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]

DecoderConfig = Annotated[
    RecurrentDecoderConfig
    | TransformerDecoderConfig
    | ConvolutionalDecoderConfig
    | DilatedDecoderConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]
