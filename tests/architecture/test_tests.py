"""Unit tests mirror packages: a test of `heedful.attention` lies in `tests/unit/attention`."""

import re
from pathlib import Path

from tests.architecture.source import ROOT, SOURCE, short
from tests.suites import LIMITS, is_quick

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
    """`make test-faults` and others collect only the files that have their mark.

    Helpers mark tests as wide; make looks for the names of these helpers, too.
    """
    makefile = (ROOT / "Makefile").read_text()
    marks = re.findall(r"call MARKED,(\w+)", makefile)
    (names,) = re.findall(r"WIDE := \|(.*)", makefile)
    helpers = [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    marked = [p for p in helpers if re.search(rf"mark\.({'|'.join(marks)})\b", p.read_text())]
    assert "faults" in marks
    for path in marked:
        assert re.findall(r"mark\.(\w+)", path.read_text()).count("wide") == 1, short(path)
        assert re.search(rf"def ({names})\(", path.read_text()), short(path)


def test_quick_suite_is_not_larger_than_its_limit(request):
    """In a run of some tests, this says nothing."""
    num_tests = sum(map(is_quick, request.session.items))
    assert num_tests <= LIMITS["quick-tests"], "merge cases, or mark them wide"
