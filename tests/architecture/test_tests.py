"""The tests themselves: a unit test lies where its module lies and bears its name."""

from pathlib import Path

from tests.architecture.source import ROOT, SOURCE, short

UNIT = ROOT / "tests" / "unit"


def modules_beside(test: Path) -> set[str]:
    folder = SOURCE / test.parent.relative_to(UNIT)
    return {path.stem for path in folder.glob("*") if path.suffix in {".py", ""}}


def mirrors(test: Path) -> bool:
    """Whether a test is called test_[FOLDER_]MODULE[_ASPECT].py, after a module that exists."""
    name = test.stem.removeprefix("test_").removeprefix(f"{test.parent.name}_")
    return any(f"{name}_".startswith(f"{module}_") for module in modules_beside(test))


def test_every_unit_test_mirrors_a_module():
    tests = sorted(UNIT.rglob("test_*.py"))
    assert [short(test) for test in tests if not mirrors(test)] == []


def test_a_test_without_a_module_is_noticed():
    assert mirrors(UNIT / "test_errors.py")
    assert mirrors(UNIT / "attention" / "test_attention_masks.py")
    assert mirrors(UNIT / "attention" / "test_masks_of_nothing.py")
    assert not mirrors(UNIT / "test_error.py")
    assert not mirrors(UNIT / "attention" / "test_nothing.py")
