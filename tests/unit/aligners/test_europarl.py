"""The aligners on Europarl English-Spanish: scores of a published course, and their order."""

import gzip

import pytest

from heedful.aligners.links import Link, parse_alignment
from heedful.aligners.training import (
    HMMAlignerConfig,
    IBMModel1Config,
    ParallelTokens,
    align_corpus,
)
from heedful.tokenization.ragged_array import RaggedArray

pytestmark = pytest.mark.slow


def read(folder, name):
    text = gzip.decompress((folder / f"europarl_{name}.gz").read_bytes()).decode()
    return [line.split() for line in text.split("\n")[:-1]]


def number(*parts):
    """Replace words by numbers, the same in all parts."""
    numbers: dict[str, int] = {}
    return [
        RaggedArray.from_sequences(
            [numbers.setdefault(word, len(numbers)) for word in line] for line in lines
        )
        for lines in parts
    ]


def f_score(found: list[set[Link]], gold: list[set[Link]]) -> float:
    num_right = sum(len(one & other) for one, other in zip(found, gold, strict=True))
    return 200 * num_right / (sum(map(len, found)) + sum(map(len, gold)))


def test_f_score_of_model_1_is_the_published_one_and_the_hmm_is_better(heedful_data):
    folder = heedful_data / "alignments"
    sources = number(read(folder, "dev.en"), read(folder, "train.en"))
    targets = number(read(folder, "dev.es"), read(folder, "train.es"))
    dev, train = map(ParallelTokens, sources, targets)
    gold = [{*parse_alignment(" ".join(line)).sure} for line in read(folder, "dev.gold")]
    scores = [
        f_score(align_corpus(config, dev, train_corpora=[train], direction="forward"), gold)
        for config in (IBMModel1Config(), HMMAlignerConfig())
    ]
    assert scores[0] == pytest.approx(42.0, abs=1.5)  # over twice as many sentences
    assert scores[1] > 60
