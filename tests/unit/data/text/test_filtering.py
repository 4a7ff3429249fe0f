"""Which pairs are kept, what the report says, and duplicates on disk."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text import filtering
from heedful.data.text.filtering import (
    ChunkFilter,
    DuplicateFinder,
    FilterConfig,
    FilterReason,
    FilterReport,
    check_not_empty,
    compute_filter_reasons,
    kept_rows,
    make_report,
    mark_duplicates,
    merge_reports,
)
from heedful.data.text.pair_dataset import Pair, combine_hashes, hash_texts
from heedful.errors import DataError


class FilterResult(NamedTuple):
    rows: list
    report: FilterReport


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
    return [[list(map(ord, pair[side])) for pair in pairs] for side in (0, 1)]


def filter_pairs(pairs, config, source_ids, target_ids):
    """Return the rows that are kept, and the report."""
    chunk = ChunkFilter(config, name_row, seen=set())
    reasons = compute_filter_reasons(pairs, source_ids, target_ids, chunk)
    report = make_report(reasons, chunk)
    check_not_empty(report, location="train")
    return FilterResult(kept_rows(reasons, config), report)


def name_row(row):
    return f"train, row {row + 1}"


def filtered(pairs, **settings):
    pairs = [Pair(*pair) for pair in pairs]
    return filter_pairs(pairs, FilterConfig(**settings), *ids_of(pairs))


def test_filter_report_counts_every_pair_once():
    report = filtered([*MIXED, ("", "bbbb")], max_length=3).report
    assert [report.counts[reason] for reason in FilterReason] == [2, 4, 2, 0, 0, 0]
    assert [report.first_rows[reason] for reason in FilterReason] == [1, 2, 4, 0, 0, 0]
    assert report.num_pairs == 8


def test_filter_report_lists_drops():
    assert filtered(MIXED, max_length=3).report.format_lines() == [
        "2 of 7 pairs kept",
        "3 dropped: an empty side (first: train, row 2)",
        "2 dropped: more than 3 tokens on a side (first: train, row 4)",
    ]


def test_filter_report_counts_duplicates_that_are_kept():
    assert filtered([("a", "b"), ("c", "d"), ("a", "b"), ("a", "b")]).report.format_lines() == [
        "4 of 4 pairs kept",
        "2 of them are duplicates of an earlier pair (first: train, row 3); drop them with "
        "data.filtering.duplicates=drop",
    ]


def test_filter_report_lists_optional_filters():
    pairs = [("aa", "bb"), ("a", "bb"), ("aa", "bbbb"), ("aa", "bb"), ("aa", "cc")]
    report = filtered(pairs, min_length=2, max_length_ratio=1.5, duplicates="drop").report
    assert report.format_lines() == [
        "2 of 5 pairs kept",
        "1 dropped: fewer than 2 tokens on a side (first: train, row 2)",
        "1 dropped: a side more than 1.5 times as long as the other (first: train, row 3)",
        "1 dropped: duplicates of an earlier pair (first: train, row 4)",
    ]


def test_filter_report_omits_zero_counts():
    assert filtered([("a", "b")]).report.format_lines() == ["1 of 1 pair kept"]


@pytest.mark.parametrize("policy", [{"on_empty": "error"}, {"on_too_long": "error"}])
def test_error_policies_accept_valid_pairs(policy):
    assert filtered([("a", "b"), ("c", "d")], **policy).rows == [0, 1]


def test_filter_asserts_equal_number_of_sides():
    with pytest.raises(ValueError, match="shorter"):
        filter_pairs(
            [Pair("a", "b")] * 2,
            FilterConfig(),
            source_ids=[[4]],
            target_ids=[[4]],
        )


def test_hash_depends_on_source_boundary():
    pairs = [Pair("ab", "c"), Pair("a", "bc"), Pair("ab", "c")]
    hashes = combine_hashes(hash_texts(pairs))
    assert hashes[0] == hashes[2] != hashes[1]


def test_empty_corpus_error_counts_all_reasons():
    pairs = [("a", "b"), ("aaaa", "bb"), ("", "b"), ("aaaaa", "b")]
    with pytest.raises(DataError) as caught:
        filtered(pairs, max_length=4, min_length=2, max_length_ratio=1.5)
    assert caught.value.message == (
        "nothing is left of 4 pairs: 1 with an empty side, 1 with more than 4 tokens on a side, "
        "1 with fewer than 2 tokens on a side, 1 with a side more than 1.5 times as long as the "
        "other"
    )


TEXTS = st.text("ab ", max_size=5)
SETTINGS = st.fixed_dictionaries(
    {
        "max_length": st.integers(3, 5),
        "min_length": st.integers(1, 2),
        "max_length_ratio": st.none() | st.sampled_from([1.0, 1.5, 2.0]),
        "duplicates": st.sampled_from(["keep", "drop"]),
    }
)


def _expected_reason(pair, config, before):
    """The reasons one by one, as the settings define them."""
    short, long = sorted(map(len, pair))
    if not pair[0].strip() or not pair[1].strip():
        return FilterReason.EMPTY
    if long > config.max_length:
        return FilterReason.TOO_LONG
    if short < config.min_length:
        return FilterReason.TOO_SHORT
    if config.max_length_ratio is not None and long / short > config.max_length_ratio:
        return FilterReason.LENGTH_RATIO
    if pair in before:
        return FilterReason.DUPLICATE
    return FilterReason.KEPT


@given(
    pairs=st.lists(st.builds(Pair, TEXTS, TEXTS), max_size=30),
    settings=SETTINGS,
    size=st.integers(1, 7),
)
def test_chunked_filtering_same_as_whole_corpus(pairs, settings, size):
    config, seen = FilterConfig(**settings), set()
    reasons, reports = [], []
    for start in range(0, len(pairs), size):
        chunk = pairs[start : start + size]
        names = [name_row(start + row) for row in range(size)]
        filtering = ChunkFilter(config, names.__getitem__, start + 1, seen=seen)
        reasons.append(compute_filter_reasons(chunk, *ids_of(chunk), filtering))
        reports.append(make_report(reasons[-1], filtering))
    expected = [_expected_reason(pair, config, pairs[:row]) for row, pair in enumerate(pairs)]
    assert [reason for chunk in reasons for reason in chunk.tolist()] == expected
    if pairs:
        report = merge_reports(reversed(reports))
        assert report == make_report(np.array(expected), ChunkFilter(config, name_row))
        assert report.num_pairs == len(pairs)
        assert report.num_kept == len(kept_rows(np.array(expected), config))


def test_rejected_pair_is_named():
    pairs = [Pair("a", "b"), Pair("a", "")]
    chunk = ChunkFilter(FilterConfig(on_empty="error"), lambda row: f"a.tsv:{1001 + row}")
    with pytest.raises(DataError) as caught:
        compute_filter_reasons(pairs, *ids_of(pairs), chunk)
    assert caught.value.location == "a.tsv:1002"


few_letters = st.sampled_from("abc")
pair_lists = st.lists(st.builds(Pair, few_letters, few_letters), max_size=30)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(filtering, "_BUFFER_SIZE", 4)


@given(pairs=pair_lists, size=st.integers(1, 7), data=st.data())
def test_duplicate_finder_matches_in_memory_search(pairs, size, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hashes")
    rows = range(len(pairs))
    held_out = sorted(data.draw(st.sets(st.sampled_from(rows)))) if pairs else []
    (folder / "hashes").mkdir()
    finder = DuplicateFinder(folder / "hashes")
    for start in range(0, len(pairs), size):
        finder.add(combine_hashes(hash_texts(pairs[start : start + size])))
    finder.write_duplicate_mask(folder / "mask", held_out)
    mask = np.fromfile(folder / "mask", np.uint8)
    train_rows = [row for row in rows if row not in held_out]
    hashes = combine_hashes(hash_texts([pairs[row] for row in train_rows]))
    is_duplicate = mark_duplicates(hashes, set())
    assert np.flatnonzero(mask).tolist() == [
        row for row, duplicate in zip(train_rows, is_duplicate, strict=True) if duplicate
    ]
    assert len(mask) == len(pairs)
