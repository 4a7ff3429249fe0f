import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from heedful.inspection.attention_map import MAX_COLUMNS, AttentionMap
from heedful.inspection.terminal_figures import terminal_heatmap
from heedful.plotting.svg import LIGHT, weight_color

RULE = "\u2502"
SIGNIFICANCE_MARK = "\u200e"


def in_cells(line):
    """A line as a list with one entry per terminal cell."""
    cells = []
    for character in line.replace(SIGNIFICANCE_MARK, ""):
        width = cell_len(character)
        if width == 0:
            cells[-1] += character
        else:
            cells += [character] + [""] * (width - 1)
    return cells


def words_in(cells):
    """The words of a line and the cells at which they begin."""
    result = []
    for place, cell in enumerate(cells):
        if cell == " ":
            continue
        if place == 0 or cells[place - 1] == " ":
            result.append([place, ""])
        result[-1][1] += cell
    return result


def number(cell):
    """The percentage a cell stands for; a dot is something between none and half."""
    return 0.25 if cell == "\u00b7" else int(cell or 0)


def read_back(plain, num_targets):
    """Read source words, target words and percentages from the characters of a drawing.

    A number is result by the place of its column's word, so a word over the wrong column, or a
    row pushed aside by a strange character, gives wrong numbers.
    """
    sources, percentages = [], [[] for _ in range(num_targets)]
    for band in plain.split("\n\n")[:-1]:
        lines = [in_cells(line) for line in band.split("\n")]
        header, rows = lines[:-num_targets], lines[-num_targets:]
        flags = sorted(word for line in header for word in words_in(line) if word[1] != RULE)
        sources += [word for _, word in flags]
        for row, read in zip(rows, percentages, strict=True):
            read += [number("".join(row[place - 2 : place + 1]).strip()) for place, _ in flags]
        targets = [words_in(row)[0][1] for row in rows]
    return sources, targets, np.array(percentages) / 100


def untitled(attention_map):
    return AttentionMap(attention_map.source, attention_map.target, attention_map.weights)


@pytest.mark.parametrize("width", [24, 30, 45, 80, 200])
def test_tokens_and_weights_can_be_read_back(latin, width):
    plain = terminal_heatmap(untitled(latin), width=width).plain
    sources, targets, weights = read_back(plain, len(latin.target))
    assert sources == latin.source
    assert targets == latin.target
    np.testing.assert_allclose(weights, latin.weights, atol=0.005 + 1e-9)


tokens = st.text(st.characters(codec=None), max_size=30).filter(lambda token: RULE not in token)


@st.composite
def maps(draw):
    source = draw(st.lists(tokens, min_size=1, max_size=12))
    target = draw(st.lists(tokens, min_size=1, max_size=4))
    seed = draw(st.integers(min_value=0, max_value=1000))
    weights = np.random.default_rng(seed).dirichlet(np.full(len(source), 0.3), len(target))
    return AttentionMap(source, target, weights)


@given(maps(), st.integers(min_value=24, max_value=100))
@settings(deadline=None)
def test_no_token_breaks_columns_or_width(attention_map, width):
    plain = terminal_heatmap(attention_map, width=width).plain
    sources, _, weights = read_back(plain, len(attention_map.target))
    assert len(sources) == len(attention_map.source)
    np.testing.assert_allclose(weights, attention_map.weights, atol=0.005 + 1e-9)
    assert max(cell_len(line) for line in plain.split("\n")) <= width


def test_unusual_characters_keep_column_alignment(hostile):
    plain = terminal_heatmap(untitled(hostile), width=100).plain
    sources, _, weights = read_back(plain, 2)
    assert sources[2:7] == ["&amp;", "]]>", "\\u202eevil", "\\x00\\x1b[31m\\n\\t", "\\ud800"]
    assert sources[8:12] == ["\u25cc\u0301", "\u25cc", "\u2423", "\u2205"]
    assert sources[13] == "\U0001f468\U0001f469\U0001f467"
    assert sources[15] == "w" * 19 + "\u2026"
    assert (weights == 0.06).all()


def test_right_to_left_words_isolated():
    hebrew = "\u05d9\u05dc\u05d3\u05d4"
    plain = terminal_heatmap(AttentionMap([hebrew], [hebrew], np.ones((1, 1))), width=40).plain
    assert (
        plain.count(f"{SIGNIFICANCE_MARK}{hebrew}{SIGNIFICANCE_MARK}") == plain.count(hebrew) == 2
    )


def test_cell_color_is_that_of_the_weight(latin):
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80, no_color=False
    )
    lines = console.render_lines(terminal_heatmap(untitled(latin), width=80))
    header = next(i for i, line in enumerate(lines) if "The" in "".join(s.text for s in line))
    for row, weights in enumerate(latin.weights):
        cells = [s for s in lines[header + row] if s.style and s.style.bgcolor]
        assert [s.style.bgcolor.name for s in cells] == [weight_color(LIGHT, w) for w in weights]
        assert [bool(s.style.bold) for s in cells] == list(weights == weights.max())


def test_heatmap_needs_no_color_and_has_a_legend(latin):
    output = io.StringIO()
    Console(file=output, width=80, color_system=None).print(terminal_heatmap(latin, width=80))
    text = output.getvalue()
    assert "\x1b" not in text
    assert text.startswith("Latin to English\n\n")
    assert text.endswith(
        "  \u00b7  25  50  75 100   "
        "percent of a token's attention (\u00b7 under half, blank none)\n"
    )


def test_label_is_on_the_highest_free_line(latin):
    lines = terminal_heatmap(untitled(latin), width=80).plain.split("\n")
    assert [line.replace(RULE, "|") for line in lines[:5]] == [
        "         Servum      horto",
        "         |   bonum   |   puella",
        "         |   |   in  |   |   videt",
        "         |   |   |   |   |   |   .",
        "   The   2   1   1   2  88   5   2 ",
    ]


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 2), (3, 0)])
def test_empty_map_has_a_note(rows, columns):
    empty = AttentionMap(["a"] * columns, ["x"] * rows, np.zeros((rows, columns)))
    assert terminal_heatmap(empty, width=80).plain == "nothing to draw"


def test_long_source_shows_the_parts_that_have_attention():
    size = 3 * MAX_COLUMNS
    weights = np.full((2, size), 1e-4)
    weights[0, 100], weights[1, 5] = 0.9, 0.4
    drawn = AttentionMap([f"w{index}" for index in range(size)], ["a", "b"], weights)
    lines = terminal_heatmap(drawn, width=80).plain.splitlines()
    notes = [line for line in lines if line.startswith("source tokens ")]
    ends = [tuple(map(int, line.partition(":")[0].split()[2::2])) for line in notes]
    assert ends[0][0] == 1
    assert ends[-1][1] == size
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(ends))
    shown = [end for end, line in zip(ends, notes, strict=True) if "none of" not in line]
    assert [first <= position <= last for (first, last) in shown for position in (6, 101)] == [
        *(True, False),
        *(False, True),
    ]
    text = "\n".join(lines)
    assert "w100" in text
    assert "w50" not in text
