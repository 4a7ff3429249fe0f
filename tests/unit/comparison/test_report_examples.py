import itertools
import random

import pytest

from heedful.comparison.report import MAX_EXAMPLE_LENGTH, diff_words, render_example
from heedful.plotting.html import row_header
from tests.example_comparisons import example_comparison, example_system


def is_row_of(words, others):
    """Whether the words stand in the others, in order."""
    rest = iter(others)
    return all(word in rest for word in words)


@pytest.mark.parametrize("seed", range(60))
def test_diff_leaves_the_longest_common_subsequence_unmarked(seed):
    draw = random.Random(seed)
    words, others = ([draw.choice("abc") for _ in range(draw.randint(0, 7))] for _ in range(2))
    result = diff_words(words, others)
    assert [word for word, _ in result] == words
    common = [word for word, is_other in result if not is_other]
    assert is_row_of(common, others)
    most = max(
        size
        for size in range(len(words) + 1)
        for row in itertools.combinations(words, size)
        if is_row_of(row, others)
    )
    assert len(common) == most


def outputs_of(*outputs, reference="the girl sees the slave"):
    systems = [example_system(i)._replace(outputs=[each]) for i, each in enumerate(outputs)]
    comparison = example_comparison(systems=systems)
    comparison = comparison._replace(sources=["puella"], references=[reference])
    table = render_example(comparison, 0, [row_header(system.name) for system in systems])
    return [row[1] for row in table.find("tbody")]


def test_example_starts_with_source_and_reference():
    texts = ["".join(cell.itertext()) for cell in outputs_of("a girl", "the girl sees a slave")]
    assert texts == ["puella", "the girl sees the slave", "a girl", "the girl sees a slave"]


def test_differing_words_marked():
    *_, cell = outputs_of("some old girl sees the the slave")
    assert [mark.text for mark in cell.iter("mark")] == ["some old", "the"]


def test_equal_output_has_a_check_mark_and_empty_output_a_placeholder():
    _, _, same, empty = outputs_of("the girl sees the slave", " ")
    assert "".join(same.itertext()).endswith("\u2713")
    assert list(same.iter("mark")) == []
    assert "".join(empty.itertext()) == "nothing"


def test_system_without_output_has_no_row():
    comparison = example_comparison(systems=[example_system(0)._replace(outputs=[])])
    table = render_example(comparison, 0, [row_header("system-0")])
    assert len(table.find("tbody")) == 2


def test_long_output_is_cut_with_an_ellipsis():
    *_, cell = outputs_of("w " * 5000)
    text = "".join(cell.itertext())
    assert (text.split().count("w"), text.endswith(" ...")) == (MAX_EXAMPLE_LENGTH, True)
