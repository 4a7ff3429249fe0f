"""Formats of examples: held-out examples and tokenization, also in worker processes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text.example_formats import (
    LABELED_TEXTS,
    LINES,
    PAIRS,
    SERIES,
    ExampleSource,
    TextChunk,
    TokenizationJob,
    tokenize_corpora,
)
from heedful.data.text.filtering import FilterConfig, FilterReason
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import TSVConfig
from heedful.errors import DataError
from heedful.parallel import worker_pool
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig


def hold_out(pairs, seed=0, example_format=PAIRS):
    pairs = [Pair(*pair) for pair in pairs]
    return example_format.choose_held_out(example_format.hash(pairs), seed=seed, location="a.tsv")


def distinct(count):
    return [(f"a{number}", f"b{number}") for number in range(count)]


@given(count=st.integers(2, 200), seed=st.integers(0, 99))
def test_held_out_pairs_are_few_distinct_and_sorted(count, seed):
    held_out = hold_out(distinct(count), seed)
    assert len(held_out.rows) == max(1, count // 20)
    assert held_out.all_rows == held_out.rows == sorted(set(held_out.rows))
    assert set(held_out.rows) <= set(range(count))


def test_held_out_pairs_depend_on_seed():
    assert len({tuple(hold_out(distinct(200), seed).rows) for seed in range(20)}) == 20


numbers = st.integers(0, 150)


@given(pairs=st.lists(st.tuples(numbers, numbers), min_size=2, max_size=300))
def test_held_out_pairs_share_no_text_with_training_pairs(pairs):
    held_out = hold_out([(f"{source}", f"{target}") for source, target in pairs])
    assert not set(held_out.rows) & set(held_out.excluded)
    assert 1 <= len(held_out.rows) <= max(1, len(pairs) // 20)
    assert len(held_out.excluded) <= len(pairs) // 10
    train = [pair for row, pair in enumerate(pairs) if row not in held_out.all_rows]
    shared = [
        side
        for side, name in enumerate(("sources", "targets"))
        if {pair[side] for pair in train} & {pairs[row][side] for row in held_out.rows}
    ]
    assert not shared or "occur repeatedly" in held_out.note
    assert ("left out" in held_out.note) == (bool(held_out.excluded) and not shared)


def test_copies_of_held_out_pairs_dropped():
    held_out = hold_out(distinct(200) * 2)
    copies = [row + 200 if row < 200 else row - 200 for row in held_out.rows]
    assert len(held_out.rows) == 20
    assert set(held_out.excluded) == set(copies) - set(held_out.rows)
    count = len(held_out.excluded)
    assert (
        held_out.note == f"{count} pairs left out: a source or a target in common with a dev pair"
    )


def test_unique_pairs_are_held_out_before_repeated_ones():
    pairs = [*[("yes", f"c{number}") for number in range(300)], *distinct(100)]
    held_out = hold_out(pairs)
    assert len(held_out.rows) == 20
    assert min(held_out.rows) >= 300
    assert not held_out.excluded


def test_repeated_targets_shared_if_nearly_all_are():
    held_out = hold_out([(f"a{number}", "yes" if number % 3 else "no") for number in range(100)])
    assert (len(held_out.rows), held_out.excluded) == (5, [])
    assert held_out.note == (
        "most targets occur repeatedly, so that dev and training pairs have some in common"
    )


def test_labels_may_be_shared_but_texts_may_not():
    pairs = [(f"a{number % 90}", "yes" if number % 3 else "no") for number in range(100)]
    held_out = hold_out(pairs, example_format=LABELED_TEXTS)
    assert (len(held_out.rows), held_out.note) == (5, "")
    train = {pair[0] for row, pair in enumerate(pairs) if row not in held_out.all_rows}
    assert not train & {pairs[row][0] for row in held_out.rows}


def test_held_out_lines_are_the_last():
    rows = LINES.choose_held_out(LINES.hash(["a"] * 100), seed=0, location="here").rows
    assert list(rows) == [95, 96, 97, 98, 99]


def test_single_line_cannot_be_split():
    with pytest.raises(DataError) as caught:
        LINES.choose_held_out(LINES.hash(["a"]), seed=0, location="book.txt")
    assert str(caught.value) == (
        "book.txt: one line is not enough: some are needed to train on and some to validate on\n"
        "  give a text of more lines, or one to validate on: --dev-text FILE"
    )


def test_tokenize_corpora_filters_and_reports():
    pairs = [Pair("a b", "x"), Pair("", "y"), Pair("a b c d", "z")]
    tokenizers = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=WordTokenizerConfig()
    ).train(*PAIRS.tokenizer_texts(pairs))
    (kept,), report = tokenize_corpora(
        [ExampleSource(pairs, str)], tokenizers, FilterConfig(max_length=3), location="data"
    )
    assert len(kept) == report.num_kept == 1
    assert tokenizers.source.decode(kept.source.get(0)) == "a b"
    assert report.counts[FilterReason.EMPTY] == report.counts[FilterReason.TOO_LONG] == 1


WORDS = SeparateTokenizersConfig(source=WordTokenizerConfig(), target=WordTokenizerConfig())


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    WORDS.train(["a b c d"], ["x y z"]).save(folder)
    return TokenizationJob(
        tokenizers=WORDS,
        folder=folder,
        example_format=PAIRS,
        filtering=FilterConfig(max_length=3),
        sources=[TSVConfig(path="a.tsv"), TSVConfig(path="b.tsv")],
    )


def chunks(count):
    for index in range(count):
        pairs = [["a b", "x\n"], ["a b c d", "x"], ["\u2028 a", "z"], ["", "y"], ["a", "x"]]
        texts = json.dumps(pairs[: 1 + index % 5], ensure_ascii=False).encode()
        yield TextChunk(texts, 1, 10 * index, index, [0] if index % 2 else [], [4])


def as_values(chunk):
    return chunk.values.dtype, chunk.values.tolist(), chunk.lengths.tolist(), chunk.metadata


@pytest.mark.wide
def test_two_workers_tokenize_as_one_process_does(job):
    expected = list(map(job.setup(is_shared=False), chunks(23)))
    with worker_pool(job, num_workers=2) as tokenize:
        results = list(tokenize(chunks(23)))
    assert list(map(as_values, results)) == list(map(as_values, expected))


@pytest.mark.wide
def test_error_of_a_worker_names_the_pair(job):
    strict = replace(job, filtering=FilterConfig(on_empty="error"))
    with pytest.raises(DataError) as caught, worker_pool(strict, num_workers=2) as tokenize:
        list(tokenize(chunks(9)))
    # It is the fourth pair of the fourth chunk, of which each begins ten rows after the one before.
    assert caught.value.location == "b.tsv, line 34"


def test_one_example_is_named_in_the_singular():
    names = {PAIRS: ("pair", "pairs"), LINES: ("line", "lines"), SERIES: ("series", "series")}
    for example_format, expected in names.items():
        assert (example_format.noun(1), example_format.noun(2)) == expected
