"""Unit tests mirror packages, quick tests are limited, and large families are thinned."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, SOURCE, short
from tests.suites import LIMITS, is_quick, limited_time, thin_families

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


def test_quick_test_that_takes_too_long_fails_on_ci(request, monkeypatch):
    monkeypatch.setenv("CI", "1")
    monkeypatch.setitem(LIMITS, "quick-test-seconds", -1)
    with (
        pytest.raises(pytest.fail.Exception, match="at most -1: make it smaller, or mark it wide"),
        limited_time(request.node),
    ):
        pass
    request.node.add_marker(pytest.mark.wide)
    with limited_time(request.node):
        pass


@pytest.mark.parametrize("marker", ["wide", "diagonal"])
def test_family_is_thinned_to_its_limit_in_any_order(request, marker, monkeypatch):
    monkeypatch.setitem(LIMITS, f"{marker}-cases-of-a-test", 5)
    kept = set()
    for order in (range(20), reversed(range(20))):
        items = [
            pytest.Function.from_parent(request.node.parent, name=f"test[{n}]", callobj=is_quick)
            for n in order
        ]
        for item in items:
            item.add_marker(marker)
        thin_families(items)
        names = sorted(item.name for item in items if not item.get_closest_marker("slow"))
        assert len(names) == 5
        kept.add(tuple(names))
    assert len(kept) == 1, "the names decide, not the order"
    assert Counter(map(is_quick, items)) == {False: 20}
