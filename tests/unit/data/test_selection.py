import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.records import Pair
from heedful.data.selection import (
    Reason,
    Seen,
    SelectionConfig,
    hash_pairs,
    join_reports,
    reasons,
    report_on,
    select,
)
from heedful.errors import DataError

MIXED = [
    ("a", "b"),
    ("", "b"),
    ("a", " \t"),
    ("aaaa", "b"),
    ("a", "bbbb"),
    ("aaa", "bbb"),
    ("", ""),
]


def ids_of(pairs):
    """A token for every character."""
    return {
        "source_ids": [list(map(ord, source)) for source, _ in pairs],
        "target_ids": [list(map(ord, target)) for _, target in pairs],
    }


def choose(pairs, **settings):
    pairs = [Pair(*pair) for pair in pairs]
    return select(pairs, SelectionConfig(**settings), **ids_of(pairs), at="train")


def test_empty_and_overlong_pairs_are_dropped_and_the_rest_keeps_its_order():
    assert choose(MIXED, max_tokens=3).rows == [0, 5]


def test_every_pair_is_counted_once():
    report = choose([*MIXED, ("", "bbbb")], max_tokens=3).report
    assert [report.counts[reason] for reason in Reason] == [2, 4, 2, 0, 0, 0]
    assert [report.firsts[reason] for reason in Reason] == [1, 2, 4, 0, 0, 0]
    assert report.total == 8


def test_a_pair_of_exactly_the_limit_is_kept():
    assert choose([("a" * 256, "b" * 256)]).rows == [0]
    assert choose([("aa", "bb")], min_tokens=2).rows == [0]
    assert choose([("a", "bbb")], max_ratio=3).rows == [0]


def test_the_report_says_what_happened():
    report = choose([*MIXED, ("a\r", "b\r")], max_tokens=3).report
    assert report.lines() == [
        "3 of 8 pairs kept",
        "3 dropped, a side being empty (first: pair 2)",
        "2 dropped, a side having more than 3 tokens (first: pair 4)",
        "1 end in a carriage return, which is text unless `normalisation.strip` is set",
    ]


def test_the_report_says_what_the_other_filters_dropped():
    pairs = [("aa", "bb"), ("a", "bb"), ("aa", "bbbb"), ("aa", "bb"), ("aa", "cc")]
    report = choose(pairs, min_tokens=2, max_ratio=1.5, duplicates="drop").report
    assert report.lines() == [
        "2 of 5 pairs kept",
        "1 dropped, a side having fewer than 2 tokens (first: pair 2)",
        "1 dropped, a side having more than 1.5 times the tokens of the other (first: pair 3)",
        "1 dropped, having come before (first: pair 4)",
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


def test_it_does_not_matter_which_side_is_the_longer_one():
    assert choose([("a", "b"), ("a", "bbb"), ("aaa", "b")], max_ratio=2).rows == [0]


def test_pairs_equal_on_one_side_only_are_no_duplicates():
    pairs = [("a", "b"), ("a", "c"), ("c", "b"), ("b", "a"), ("a", "b")]
    assert choose(pairs).rows == [0, 1, 2, 3, 4]
    assert choose(pairs, duplicates="drop").rows == [0, 1, 2, 3]


def test_where_the_source_ends_tells_pairs_apart():
    hashes = hash_pairs([Pair("ab", "c"), Pair("a", "bc"), Pair("ab", "c")])
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_message_counts_all_that_left_nothing():
    pairs = [("a", "b"), ("aaaa", "bb"), ("", "b"), ("aaaaa", "b")]
    with pytest.raises(DataError) as caught:
        choose(pairs, max_tokens=4, min_tokens=2, max_ratio=1.5)
    assert caught.value.problem == (
        "no pair is left of 4: 1 with an empty side, 1 with more than 4 tokens on a side, "
        "1 with fewer than 2 tokens on a side, 1 with more than 1.5 times the tokens on one side"
    )


TEXTS = st.text("ab ", max_size=5)
SETTINGS = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(3, 5),
        "min_tokens": st.integers(1, 2),
        "max_ratio": st.none() | st.sampled_from([1.0, 1.5, 2.0]),
        "duplicates": st.sampled_from(["keep", "drop"]),
    }
)


def _why(pair, config, before):
    """The reasons one by one, in words as near to the settings' as can be."""
    short, long = sorted(map(len, pair))
    if not pair[0].strip() or not pair[1].strip():
        return Reason.EMPTY
    if long > config.max_tokens:
        return Reason.TOO_LONG
    if short < config.min_tokens:
        return Reason.TOO_SHORT
    if config.max_ratio is not None and long / short > config.max_ratio:
        return Reason.UNEVEN
    if config.duplicates == "drop" and pair in before:
        return Reason.REPEATED
    return Reason.KEPT


@given(
    pairs=st.lists(st.builds(Pair, TEXTS, TEXTS), max_size=30),
    settings=SETTINGS,
    size=st.integers(1, 7),
)
def test_a_corpus_in_chunks_is_the_corpus_at_once(pairs, settings, size):
    config, seen = SelectionConfig(**settings), Seen()
    found, reports = [], []
    for start in range(0, len(pairs), size):
        chunk = pairs[start : start + size]
        where = {"at": "train", "first": start + 1}
        found.append(reasons(chunk, config, **ids_of(chunk), **where, seen=seen))
        reports.append(report_on(found[-1], chunk, config, first=start + 1))
    expected = [_why(pair, config, pairs[:row]) for row, pair in enumerate(pairs)]
    assert [each for chunk in found for each in chunk.tolist()] == expected
    if pairs:
        report = join_reports(reversed(reports))
        assert report == report_on(np.array(expected), pairs, config)
        assert report.total == len(pairs)


def test_a_refused_pair_is_numbered_in_the_whole_corpus():
    pairs = [Pair("a", "b"), Pair("a", "")]
    with pytest.raises(DataError) as caught:
        reasons(pairs, SelectionConfig(empty="refuse"), **ids_of(pairs), at="train", first=1001)
    assert caught.value.at == "train, pair 1002"
