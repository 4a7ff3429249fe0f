import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from heedful.plotting.svg import (
    escape_invisible,
    escape_line,
    format_percent,
    format_weight,
    split_joined_emoji,
    truncate,
)

anything = st.text(st.characters(codec=None), max_size=12)


@pytest.mark.parametrize(
    ("token", "label"),
    [
        ("puella", "puella"),
        ("", "\u2205"),
        (" ", "\u2423"),
        ("New York", "New\u2423York"),
        ("\t", "\\t"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2066", "\\u2066"),
        ("\u00a0", "\\xa0"),
        ("\u2028", "\\u2028"),
        ("\u3164", "\\u3164"),
        ("\ud800", "\\ud800"),
        ("\u0301", "\u25cc\u0301"),
        ("\u200d", "\u25cc\u200d"),
        ("e\u0301", "e\u0301"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0631", "\u0645\u06cc\u200c\u062e\u0648\u0631"),
    ],
)
def test_every_character_of_a_token_is_visible(token, label):
    assert escape_invisible(token) == label


@given(anything)
def test_label_has_width_and_can_be_encoded(token):
    label = escape_invisible(token)
    assert cell_len(split_joined_emoji(label)) > 0
    assert split_joined_emoji(label).isprintable()
    assert " " not in label
    label.encode("utf-8")


@given(anything, st.integers(min_value=1, max_value=10))
def test_truncated_label_fits_and_is_a_prefix(token, cells):
    label = split_joined_emoji(escape_invisible(token))
    short = truncate(label, cells)
    assert cell_len(short) <= cells
    assert short == label or label.startswith(short.removesuffix("\u2026"))


def test_only_truncated_labels_end_in_an_ellipsis():
    assert truncate("puella", 6) == "puella"
    assert truncate("puellarum", 6) == "puell\u2026"
    assert truncate("\u65e5\u672c\u8a9e", 4) == "\u65e5\u2026"
    assert truncate("e\u0301e\u0301e\u0301", 2) == "e\u0301\u2026"


def test_escaped_line_keeps_spaces_on_one_line():
    assert escape_line("Latin\nto  English\u202e") == "Latin to English\\u202e"


@pytest.mark.parametrize(
    ("weight", "written"),
    [(0, ""), (1e-9, "\u00b7"), (0.0049, "\u00b7"), (0.0051, "1"), (0.934, "93"), (1, "100")],
)
def test_zero_and_small_percentages_differ(weight, written):
    assert format_percent(weight) == written


def test_weight_keeps_four_significant_digits():
    assert [format_weight(w) for w in (0, 1, 0.93, 1 / 3, 1e-5 / 3)] == [
        *("0", "1", "0.93", "0.3333", "3.333e-06")
    ]
