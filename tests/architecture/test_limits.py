"""`make check` fails above a limit: the comparison, and what is measured."""

import tomllib
from pathlib import Path

from tools import code_counts, foreign_words
from tools.limits import ROOT, exceeded


def write_package(folder: Path, **modules: str) -> Path:
    package = folder / "package"
    package.mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (package / f"{name}.py").write_text(text)
    return package


def test_figure_above_limit_raises():
    assert exceeded({"lines": 101}, {"lines": 100}) == ["lines is 101, more than 100"]
    assert exceeded({"lines": 100}, {"lines": 100}) == []


def test_figure_without_limit_and_limit_without_figure_reported():
    lines = exceeded({"lines": 1}, {"files": 1})
    assert lines == ["files has a limit, but is not measured", "lines has no limit"]


def test_import_circle_is_found_through_an_import_in_a_function(tmp_path):
    package = write_package(
        tmp_path,
        first="import package.second",
        second="def late():\n    from package import third",
        third="from package.first import name",
        other="from package import first",
    )
    circles = code_counts.count(package).circles
    assert circles == [["package.first", "package.second", "package.third"]]


def test_module_with_one_importer_in_the_folder_is_found(tmp_path):
    package = write_package(
        tmp_path, both="", one="import package.both", two="import package.both, package.one"
    )
    assert code_counts.count(package).single_importer == ["package.one"]


def test_module_behind_its_package_counts_importers_of_the_package(tmp_path):
    package = write_package(
        tmp_path,
        __init__="from package.one import name",
        one="name = 1",
        first="from package import name",
        second="from package import name, first",
    )
    assert code_counts.count(package).single_importer == ["package.first"]


def test_entry_of_a_table_is_no_part_of_it(tmp_path, monkeypatch):
    package = write_package(tmp_path, table="import package.one", one="name = 1")
    monkeypatch.setattr(code_counts, "TABLES", {"package.table": "entries"})
    assert code_counts.count(package).single_importer == []


def test_foreign_words_are_frequent_here_and_rare_in_the_field():
    words = ["heads"] * 10 + ["quux"] * 3 + ["latin"] * 10
    vocabulary = foreign_words.find_foreign(words, {"heads": 500_000.0})
    assert vocabulary.foreign == {"quux": 3}
    assert vocabulary.percent == 100 * 3 / 23


def test_overview_has_the_limits_of_files_entered():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    limits = settings["tool"]["heedful"]["limits"]
    overview = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
    for command, recipe, name in (
        ("train`, up to the first update", "bahdanau-2015-small", "first-update-bahdanau"),
        ("translate`, of one text", "bahdanau-2015-small", "prediction-bahdanau"),
        (
            "caption`, of one image",
            "show-attend-tell-2015-soft-small",
            "prediction-show-attend-tell",
        ),
    ):
        assert f"| `heedful {command} | `{recipe}` | {limits[f'files-{name}']} |" in overview
