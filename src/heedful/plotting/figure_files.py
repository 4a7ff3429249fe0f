"""Figures as files: SVG, or PNG that resvg renders from it; the ending of the name decides.

resvg draws as browsers do, in the light palette, with the fonts of the system: a script that no
installed font has is drawn as boxes.
"""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from heedful.errors import ConfigError, check
from heedful.plotting.svg import LIGHT
from heedful.storage.atomic import atomic_replace, write_text
from heedful.terminal import check_figure_files

SCALE = 2
"""Pixels of a PNG per pixel of the SVG, for screens of high resolution."""
_SAMPLE = "<svg xmlns='http://www.w3.org/2000/svg' width='20' height='20'>{}</svg>"


def write_figures(paths: Iterable[Path], render: Callable[[], str]) -> None:
    """Write an SVG document, which is rendered once, to each path as SVG or as PNG."""
    paths = check_figure_files(list(paths)) or []
    document = render() if paths else ""
    for path in paths:
        if path.suffix.lower() == ".svg":
            write_text(path, document)
        else:
            png = render_png(document, str(path))
            with atomic_replace(path) as temporary:
                temporary.write_bytes(png)


def render_png(svg: str, location: str = "figure") -> bytes:
    """Return an SVG document as a PNG file; `location` is named if the system has no fonts."""
    import resvg_py

    message, hint = "the system has no fonts to draw text with", "install DejaVu Sans or Noto Sans"
    check(_has_fonts(), location, message, hint, ConfigError)
    return resvg_py.svg_to_bytes(svg_string=svg, zoom=SCALE, background=LIGHT.background)


@cache
def _has_fonts() -> bool:
    """Return whether text leaves any trace on an image."""
    import resvg_py

    text = "<text y='16' font-family='\"DejaVu Sans\", \"Noto Sans\", Helvetica, Arial'>x</text>"
    drawn = [resvg_py.svg_to_bytes(svg_string=_SAMPLE.format(part)) for part in (text, "")]
    return drawn[0] != drawn[1]
