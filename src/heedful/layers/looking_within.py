"""Looking within: how does a source look at itself, before any target is known?

Whatever a mechanism learns from targets, or keeps for them, has no place here, and is refused.
"""

from __future__ import annotations

from heedful.attention.attend import Attends
from heedful.attention.choices.attention import AttentionConfig
from heedful.errors import ConfigError


def within_a_source(
    config: AttentionConfig, *, query_size: int, memory_size: int, at: str
) -> Attends:
    """Make attention by which a source looks at itself, before any target is known."""
    attention = config.build(query_size=query_size, memory_size=memory_size)
    attention.kind = "self"
    if attention.read.is_per_position:
        raise ConfigError(
            f"{at}.read.kind",
            f"{config.read.kind!r} keeps every place apart, but here one context is wanted",
            "choose the readout 'expectation'",
        )
    if config.penalties:
        raise ConfigError(
            f"{at}.penalties",
            "where a source looks at itself cannot be penalised",
            "leave penalties out",
        )
    if attention.is_penalised:
        raise ConfigError(
            f"{at}.align.kind",
            f"{config.align.kind!r} learns from how well a token was said, but none is said here",
            "choose 'gumbel-softmax' or 'straight-through'",
        )
    return attention
