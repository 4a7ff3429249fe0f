"""The full text of what is said where options of `heedful translate` do not go together."""

import pytest

from tests.commands import heedful


@pytest.fixture
def call(capsys, monkeypatch, trained, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("a\nb\n")

    def run(*words):
        return heedful(capsys, monkeypatch, "translate", trained, "in", *words)

    return run


@pytest.mark.parametrize(
    "words",
    [("--beam", "2"), ("--nbest", "2"), ("--constraints", "wishes"), ("--search-tree", "tree")],
    ids=lambda words: words[0],
)
def test_what_is_given_is_not_searched_for(call, words):
    ended = call("--force-target", "in", *words)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {words[0]}: says how outputs are searched for, and --force-target gives them\n"
        f"  leave out {words[0]} or --force-target\n"
    )


def test_a_way_to_align_without_alignments(call):
    ended = call("--alignment-method", "argmax")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --alignment-method: says how alignments are made, and none are written\n"
        "  add --alignments FILE\n"
    )


def test_an_unknown_way_to_align(call, tmp_path):
    ended = call("--save-alignments", "links", "--alignment-method", "argmix")
    assert ended.code == 2
    assert ended.err.startswith("heedful: --alignment-method: no alignment is called 'argmix'")
    assert not (tmp_path / "links").exists()


def test_unequal_files_are_refused_before_any_work(call, tmp_path):
    (tmp_path / "out").write_text("a\n")
    ended = call("--force-target", "out", "--save-scores", "scores")
    assert ended.code == 2
    assert ended.err == (
        "heedful: out: 1 lines, but in has 2\n"
        "  line n of one must belong to line n of the other: look for lost or added lines\n"
    )
    assert not (tmp_path / "scores").exists()


def test_a_file_is_not_written_over_while_it_is_read(call, tmp_path):
    ended = call("--save-scores", "in")
    assert ended.code == 2
    assert ended.err == "heedful: --save-scores: in is read (in)\n  name another file\n"
    assert (tmp_path / "in").read_text() == "a\nb\n"


def test_one_standard_input_for_two_files(call, trained, capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch, "translate", trained, "-", "--force-target", "-")
    assert ended.code == 2
    assert "two files cannot both be read from it" in ended.err


def test_a_tree_of_what_is_drawn(call):
    ended = call("--search-tree", "tree", "--set", "decoding.sampling={}")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --search-tree: only a beam has a tree, and outputs are drawn (decoding.sampling is "
        "set)\n  leave out --search-tree, or add --set decoding.sampling=null\n"
    )


def test_constraints_with_a_mistake_are_named_by_line_after_what_came_before(call, tmp_path):
    (tmp_path / "wishes").write_text('{}\n{"must": 1}\n')
    ended = call("--constraints", "wishes")
    assert (ended.code, ended.out) == (2, "a\n")
    assert ended.err.startswith("heedful: wishes:2: 'must' cannot be 1\n")


def test_bad_bytes_spoil_nothing_before_them(call, tmp_path):
    (tmp_path / "in").write_bytes(b"a\nb\n\xff\n")
    ended = call()
    assert (ended.code, ended.out) == (2, "a\nb\n")
    assert "in:3" in ended.err
