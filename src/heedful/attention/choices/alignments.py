"""The alignments, as a configuration names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.attention.choices.hard import HardConfig
from heedful.attention.choices.local import LocalConfig
from heedful.attention.choices.monotonic import MonotonicFamilyConfig
from heedful.attention.choices.sharing import SharingConfig

AlignmentConfig = Annotated[
    SharingConfig | LocalConfig | MonotonicFamilyConfig | HardConfig, Field(discriminator="kind")
]
