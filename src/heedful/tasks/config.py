"""The models, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from heedful.tasks.continuation import ContinuationConfig
from heedful.tasks.transduction import TransducerConfig


def _assumed(said: Any) -> Any:
    """A model whose kind is not said is an encoder and a decoder."""
    return {"kind": "encoder-decoder", **said} if isinstance(said, dict) else said


ModelConfig = Annotated[
    TransducerConfig | ContinuationConfig, Field(discriminator="kind"), BeforeValidator(_assumed)
]
