"""Invariants of every built-in corpus."""

import os
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from heedful.data.synthetic import SYNTHETIC_CORPORA, get_corpus
from heedful.data.synthetic.corpus import Corpus, assign_split
from heedful.data.text.pair_dataset import Pair
from heedful.errors import DataError

each_corpus = pytest.mark.parametrize("name", SYNTHETIC_CORPORA)
each_split = pytest.mark.parametrize(
    ("name", "split"),
    [(name, split) for name, each in SYNTHETIC_CORPORA.items() for split in each.splits],
)


class Coins(Corpus):
    """A corpus with two pairs in it."""

    name = "coins"
    description = "heads and tails"

    def generate(self, split, random):
        while True:
            side = random.choice(("heads", "tails"))
            yield Pair(side, side.upper())

    def is_in_split(self, pair, split):
        return True


def draw(name, split, count, seed=0):
    return list(islice(get_corpus(name).pairs(split, seed=seed), count))


@each_corpus
def test_get_corpus_returns_corpus_by_name(name):
    assert get_corpus(name) is SYNTHETIC_CORPORA[name]
    assert get_corpus(name).name == name
    assert get_corpus(name).description
    assert "\n" not in get_corpus(name).description


@each_split
def test_corpus_is_deterministic_by_seed(name, split):
    assert draw(name, split, 50, seed=3) == draw(name, split, 50, seed=3)


@each_split
def test_corpus_seeds_differ(name, split):
    assert draw(name, split, 50, seed=3) != draw(name, split, 50, seed=4)


@each_corpus
def test_corpus_splits_differ(name):
    streams = [tuple(draw(name, split, 30)) for split in get_corpus(name).splits]
    assert len(set(streams)) == len(streams)


@pytest.mark.wide
@each_corpus
def test_corpus_splits_are_disjoint(name):
    trained = {pair.source for pair in draw(name, "train", 20_000)}
    dev = {pair.source for pair in draw(name, "dev", 200)}
    test = {pair.source for pair in draw(name, "test", 200)}
    assert not trained & dev
    assert not trained & test
    assert not dev & test


@each_split
def test_dev_and_test_pairs_do_not_repeat(name, split):
    if split != "train":
        sources = [pair.source for pair in draw(name, split, 100)]
        assert len(set(sources)) == len(sources)


@each_corpus
def test_sources_have_one_target(name):
    targets = {}
    for source, target in draw(name, "train", 5000):
        assert targets.setdefault(source, target) == target


@pytest.mark.wide  # another process draws, too
def test_pairs_do_not_depend_on_hash_seed():
    program = (
        "from itertools import islice; from heedful.data.synthetic import SYNTHETIC_CORPORA; "
        "print([list(islice(each.pairs('train'), 20)) for each in SYNTHETIC_CORPORA.values()])"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another than ours
    env = {**os.environ, "PYTHONHASHSEED": seed}
    output = subprocess.check_output([sys.executable, "-c", program], env=env, text=True)
    assert output == f"{[draw(name, 'train', 20) for name in SYNTHETIC_CORPORA]}\n"


def test_exhausted_split_starts_over():
    assert Counter(islice(Coins().pairs("test"), 6)) == {
        Pair("heads", "HEADS"): 3,
        Pair("tails", "TAILS"): 3,
    }


def test_training_pairs_may_repeat():
    assert len(set(islice(Coins().pairs("train"), 20))) == 2


def test_assign_split_follows_split_sizes():
    shares = Counter(assign_split(str(number)) for number in range(50_000))
    assert shares["train"] == pytest.approx(48_000, rel=0.01)
    assert shares["dev"] == pytest.approx(1000, rel=0.15)
    assert shares["test"] == pytest.approx(1000, rel=0.15)


def test_unknown_corpus_error_suggests_nearest_name():
    with pytest.raises(DataError) as caught:
        get_corpus("lattin")
    assert str(caught.value) == (
        "corpus: no built-in corpus is called 'lattin'; did you mean 'latin'?\n"
        "  choose from: argsort, arithmetic, arithmetic-gaps, copy, dates, latin, reverse, sort"
    )
