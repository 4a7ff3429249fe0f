import json
from xml.etree import ElementTree

import pytest

from tests.commands import heedful


@pytest.fixture
def call(capsys, monkeypatch, trained):
    def run(*words):
        return heedful(capsys, monkeypatch, "show", trained, *words)

    return run


def test_the_terminal_shows_both_texts_and_where_each_word_looked(call):
    ended = call("a b c")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[1:3] == ["a b c", "a b c"]
    rows = [line.split() for line in lines[3:] if line.split()[:1] in (["a"], ["b"], ["c"])]
    assert [row[0] for row in rows[-3:]] == ["a", "b", "c"]


def test_pictures_are_written_where_asked(call, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    ended = call("a b", "c", "--svg", svg, "--html", html)
    assert ended.err == f"wrote {svg}\nwrote {html}\n"
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    page = html.read_text()
    assert page.count('"title"') == 2


def test_json_holds_the_weights(call):
    ended = call("a b", "--json")
    assert json.loads(ended.out)["tokens"] == ["a", "b"]


def test_brackets_in_a_text_are_text(call):
    ended = call("[bold]a[/bold]")
    assert "[bold]a[/bold]" in ended.out
