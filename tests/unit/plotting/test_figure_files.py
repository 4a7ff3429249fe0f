"""Figures as files: PNG that is rendered from SVG."""

import struct

import pytest

from heedful.errors import ConfigError
from heedful.plotting import svg
from heedful.plotting.svg import add_text, render_png, svg_document, to_svg, write_figures

pytest.importorskip("resvg_py", reason="resvg-py is not installed")


def document(text):
    root = svg_document(120, 50, title="t", description="d", heading="")
    add_text(root, "note", text, x=10, y=30)
    return to_svg(root)


def test_png_has_twice_the_size_and_shows_text():
    png = render_png(document("word"))
    assert struct.unpack(">II", png[16:24]) == (240, 100)
    assert png != render_png(document(""))


def test_document_is_rendered_once_for_all_files(tmp_path):
    calls = []
    paths = [tmp_path / "a.svg", tmp_path / "b.svg", tmp_path / "c.png"]
    write_figures(paths, lambda: calls.append(1) or document("word"))
    assert len(calls) == 1
    assert paths[0].read_text() == paths[1].read_text() == document("word")
    assert paths[2].read_bytes() == render_png(document("word"))


def test_system_without_fonts_raises(monkeypatch, tmp_path):
    monkeypatch.setattr(svg, "_has_fonts", lambda: False)
    path = tmp_path / "a.png"
    with pytest.raises(ConfigError) as error:
        write_figures([path], lambda: document("word"))
    assert str(error.value) == (
        f"{path}: the system has no fonts to draw text with\n  install DejaVu Sans or Noto Sans"
    )
    assert not path.exists()
