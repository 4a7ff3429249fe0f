"""Colours: what a weight looks like.

A weight of zero has the colour of the track, a weight of one that of the ink, and a weight
between is a straight mixture of both: the same as ink of that opacity laid over the track.
Each palette holds one hue, so lightness alone carries the weight, to every kind of eye. Digits
on a shaded cell change from one side of the scale to the other at `STRONG`, and the palettes
are tuned so that they keep a contrast of 4.5 to 1 on both sides of it.
"""

from __future__ import annotations

from typing import NamedTuple

STRONG = 0.64
"""Cells heavier than this carry digits in the opposite colour."""
FAINT = 0.05
"""Cells lighter than this carry digits that step back."""


class Palette(NamedTuple):
    """The colours of a picture, as `#rrggbb`."""

    paper: str
    track: str
    ink: str
    on_track: str  # digits on light weights
    on_ink: str  # digits on heavy weights
    text: str
    muted: str
    rule: str
    accent: str  # what the reader points at


LIGHT = Palette(
    paper="#ffffff",
    track="#eef1f8",
    ink="#1e2a80",
    on_track="#000000",
    on_ink="#ffffff",
    text="#171b2e",
    muted="#5d6579",
    rule="#d9deea",
    accent="#c2410c",
)
DARK = Palette(
    paper="#10141f",
    track="#1c2333",
    ink="#80a0ff",
    on_track="#ffffff",
    on_ink="#000000",
    text="#e7eaf4",
    muted="#98a1b5",
    rule="#2b3347",
    accent="#fdba74",
)


def shade(palette: Palette, weight: float) -> str:
    """Mix the colour of a weight."""
    pairs = zip(_channels(palette.track), _channels(palette.ink), strict=True)
    mixed = [round(track + (ink - track) * weight) for track, ink in pairs]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def digits(palette: Palette, weight: float) -> str:
    """Choose the colour in which digits are readable on the shade of a weight."""
    return palette.on_ink if weight > STRONG else palette.on_track


def css_variables() -> str:
    """Write both palettes as CSS custom properties, chosen by what the reader's system prefers."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n"
    )


def _variables(palette: Palette) -> str:
    return " ".join(
        f"--{name.replace('_', '-')}: {colour};" for name, colour in palette._asdict().items()
    )
