"""x."""

from typing import Any


def bench(settings: Any) -> None:
    """X."""
