"""The gallery: each picture has a command beside it, and the quick commands draw it again."""

import re
import shlex

import pytest

from heedful.course.classroom import RUNS
from tests.commands import heedful
from tests.documents.commands import commands
from tests.documents.markdown import ROOT
from tools import draw_gallery

PAGE = ROOT / "docs" / "course" / "gallery.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: part for part in TEXT.split("\n### ")[1:]}
DRAWN = {  # pictures by the commands of heedful that need no training
    line: PAGE.parent / "images" / path
    for part in SECTIONS.values()
    for line in re.findall(r"^\$ heedful (recipes .*|show demo .*)$", part, re.MULTILINE)
    for path in re.findall(r"\]\(images/(.*?)\)", part)
}


def test_each_figure_names_its_slide_and_has_command_and_picture():
    for title, part in SECTIONS.items():
        assert re.search(r"Decks? 00\d", part), title
        assert re.search(r"^\$ ", part, re.MULTILINE), title
        pictures = re.findall(r"!\[.+?\]\((.+?)\)", part)
        assert pictures, title
        assert [path for path in pictures if not (PAGE.parent / path).is_file()] == []
    assert set(re.findall(r"00\d", TEXT)) == {f"00{deck}" for deck in range(5)}


def test_runs_are_prepared_or_trained_beside_the_picture():
    prepared = {f"runs/{name}" for session in RUNS.values() for name in session}
    trained = set(re.findall(r"--run (runs/[\w-]+)", TEXT))
    assert set(re.findall(r"runs/[\w-]+", TEXT)) <= prepared | trained


def test_commands_parse():
    assert len(DRAWN) == 7
    for line in DRAWN:
        name, *words = shlex.split(line)
        commands()[name].make_context(name, words)


@pytest.mark.wide
@pytest.mark.parametrize("line", DRAWN)
def test_command_draws_the_picture(line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    assert heedful(capsys, monkeypatch, *words).code == 0
    drawn = (tmp_path / words[words.index("--svg") + 1]).read_text(encoding="utf-8")
    if words[0] == "recipes":
        assert drawn == DRAWN[line].read_text(encoding="utf-8")
    else:  # processors differ in the last digits of weights
        assert words_of(drawn) == words_of(DRAWN[line].read_text(encoding="utf-8"))


def words_of(drawing):
    return re.findall(r">([A-Za-z.]+)<", drawing)


def test_plot_of_flops_is_that_of_the_results():
    path = PAGE.parent / "images" / draw_gallery.FILES["flops"]
    assert draw_gallery.draw_flops() == path.read_text(encoding="utf-8")
