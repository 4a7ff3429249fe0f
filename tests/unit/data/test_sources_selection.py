import pytest

from heedful.data.records import Pair
from heedful.data.selection import SelectionConfig, select


def choose(pairs, **settings):
    return select(
        [Pair(*pair) for pair in pairs],
        SelectionConfig(**settings),
        source_ids=[list(map(ord, source)) for source, _ in pairs],
        target_ids=[list(map(ord, target)) for _, target in pairs],
        at="train",
    )


MIXED = [
    ("a", "b"),
    ("", "b"),
    ("a", " \t"),
    ("aaaa", "b"),
    ("a", "bbbb"),
    ("aaa", "bbb"),
    ("", ""),
]


def test_empty_and_overlong_pairs_are_dropped_and_the_rest_keeps_its_order():
    assert choose(MIXED, max_tokens=3).rows == [0, 5]


def test_every_pair_is_counted_once():
    report = choose([*MIXED, ("", "bbbb")], max_tokens=3).report
    assert (report.kept, report.dropped_empty, report.dropped_too_long) == (2, 4, 2)
    assert (report.first_empty, report.first_too_long) == (2, 4)
    assert report.total == 8


def test_a_pair_of_exactly_the_limit_is_kept():
    assert choose([("a" * 256, "b" * 256)]).rows == [0]


def test_the_report_says_what_happened():
    report = choose([*MIXED, ("a\r", "b\r")], max_tokens=3).report
    assert report.lines() == [
        "3 of 8 pairs kept",
        "3 dropped, a side being empty (first: pair 2)",
        "2 dropped, a side having more than 3 tokens (first: pair 4)",
        "1 end in a carriage return, which is text unless `normalisation.strip` is set",
    ]


def test_the_report_is_silent_on_what_did_not_happen():
    assert choose([("a", "b")]).report.lines() == ["1 of 1 pairs kept"]


@pytest.mark.parametrize("kept", [{"empty": "refuse"}, {"too_long": "refuse"}])
def test_refusing_is_no_hindrance_to_sound_pairs(kept):
    assert choose([("a", "b"), ("c", "d")], **kept).rows == [0, 1]


def test_sides_of_unequal_number_are_our_own_mistake():
    with pytest.raises(ValueError, match="shorter"):
        select(
            [Pair("a", "b")] * 2, SelectionConfig(), source_ids=[[4]], target_ids=[[4]], at="train"
        )
