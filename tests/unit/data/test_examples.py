"""Formats of examples: held-out examples and tokenization."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.examples import LINES, PAIRS, tokenize_corpora
from heedful.data.filtering import FilterConfig, FilterReason
from heedful.data.pair_dataset import Pair
from heedful.errors import DataError
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig


@given(count=st.integers(2, 200), seed=st.integers(0, 99))
def test_held_out_pairs_are_few_distinct_and_sorted(count, seed):
    rows = PAIRS.choose_held_out(count, seed=seed, location="here")
    assert len(rows) == max(1, count // 20)
    assert rows == sorted(set(rows))
    assert set(rows) <= set(range(count))


def test_held_out_pairs_depend_on_seed():
    chosen = {tuple(PAIRS.choose_held_out(200, seed=seed, location="")) for seed in range(20)}
    assert len(chosen) == 20


def test_held_out_lines_are_the_last():
    assert list(LINES.choose_held_out(100, seed=0, location="here")) == [95, 96, 97, 98, 99]


def test_single_line_cannot_be_split():
    with pytest.raises(DataError) as caught:
        LINES.choose_held_out(1, seed=0, location="book.txt")
    assert str(caught.value) == (
        "book.txt: one line is not enough: some are needed to train on and some to validate on\n"
        "  give a text of more lines, or one to validate on: --dev-text FILE"
    )


def test_single_pair_cannot_be_split():
    with pytest.raises(DataError) as caught:
        PAIRS.choose_held_out(1, seed=0, location="a.tsv")
    assert str(caught.value) == (
        "a.tsv: one pair is not enough: one is needed to train on and one to validate on\n"
        "  give more lines, or files to validate on: --dev-source FILE --dev-target FILE"
    )


def test_tokenize_corpora_filters_and_reports():
    pairs = [Pair("a b", "x"), Pair("", "y"), Pair("a b c d", "z")]
    tokenizers = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=WordTokenizerConfig()
    ).train(*PAIRS.tokenizer_texts(pairs))
    (kept,), report = tokenize_corpora(
        [pairs], tokenizers, FilterConfig(max_length=3), location="data"
    )
    assert len(kept) == report.num_kept == 1
    assert tokenizers.source.decode(kept.source.get(0)) == "a b"
    assert report.counts[FilterReason.EMPTY] == report.counts[FilterReason.TOO_LONG] == 1
