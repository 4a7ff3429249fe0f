import json
from xml.etree import ElementTree

import pytest

from tests.commands import heedful
from tests.messages.test_run_messages import vouch_for


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
    line = json.loads(ended.out)
    assert line["tokens"] == ["a", "b"]
    assert [len(row) for row in line["weights"]] == [3, 3]
    assert "tree" not in line
    assert json.loads(call("a b", "--json", "--search-tree").out)["tree"][0]["token"] is None


def test_the_search_is_drawn_as_a_tree(call):
    ended = call("a b c", "d", "--search-tree", "--beam", "2")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "a b c"
    assert any(line.split()[-3:-1] == ["ended", "at"] for line in lines)
    assert any("pruned at" in line for line in lines)


def test_what_is_drawn_by_chance_has_no_tree(capsys, monkeypatch, copied):
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("sampling: null", "sampling: {}"))
    vouch_for(copied)
    ended = heedful(capsys, monkeypatch, "show", copied, "a", "--search-tree")
    assert ended.code == 2
    assert ended.err.startswith("heedful: --search-tree: only a beam has a tree")


def test_brackets_in_a_text_are_text(call):
    ended = call("[bold]a[/bold]")
    assert "[bold]a[/bold]" in ended.out
