"""The image of docs/attention/nadaraya-watson.md is what its code draws."""

import pytest

from tests.documents.markdown import ROOT, python_of
from tests.documents.test_lab import chart_points

PAGE = ROOT / "docs" / "attention" / "nadaraya-watson.md"


def test_image_of_kernel_regression_is_up_to_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(python_of(PAGE.read_text(encoding="utf-8")), {"__name__": "__main__"})
    drawn = chart_points(tmp_path / "nadaraya-watson.svg")
    shown = chart_points(PAGE.parent / "images" / "nadaraya-watson.svg")
    assert list(drawn) == list(shown)
    for name, points in shown.items():
        assert drawn[name] == {x: pytest.approx(y, abs=1e-4) for x, y in points.items()}
