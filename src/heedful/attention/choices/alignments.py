"""The alignments, as a configuration names them."""

from __future__ import annotations

from heedful.attention.choices.sharing import SharingConfig

AlignmentConfig = SharingConfig
