"""Unit tests mirror packages: a test of `heedful.attention` lies in `tests/unit/attention`."""

import re
from pathlib import Path

from tests.architecture.source import ROOT, SOURCE, short

UNIT = ROOT / "tests" / "unit"


def mirrors_package(test: Path) -> bool:
    return (SOURCE / test.parent.relative_to(UNIT)).is_dir()


def test_unit_tests_mirror_packages():
    tests = sorted(UNIT.rglob("test_*.py"))
    assert [short(test) for test in tests if not mirrors_package(test)] == []


def test_unit_test_without_package_is_found():
    assert mirrors_package(UNIT / "test_errors.py")
    assert mirrors_package(UNIT / "attention" / "test_masks.py")
    assert not mirrors_package(UNIT / "attentions" / "test_masks.py")


def test_marks_that_make_looks_for_stand_in_test_files():
    """`make test-faults` and others collect only the files that have their mark."""
    marks = re.findall(r"call MARKED,(\w+)", (ROOT / "Makefile").read_text())
    helpers = [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    marked = rf"mark\.({'|'.join(marks)})\b"
    assert marks
    assert [short(path) for path in helpers if re.search(marked, path.read_text())] == []
