from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import validate_settings
from heedful.data.sources import SyntheticPairsConfig
from heedful.data.text.pair_dataset import InMemoryPairDataset, MixedDataset, Pair
from heedful.data.text.pair_files import CorpusConfig, MixtureConfig
from heedful.tokenization.ragged_array import RaggedArray

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=3)
WEIGHTS = st.sampled_from([0.1, 0.3, 0.5, 1.0, 1.5, 2.0])


def corpus(index, size):
    """Rows that contain the number of their corpus and their row, of different lengths."""
    sources = [[100 * index, row] + [7] * (row % 3) for row in range(size)]
    targets = [[100 * index, row] + [8] * (row % 5) for row in range(size)]
    return InMemoryPairDataset(
        RaggedArray.from_sequences(sources), RaggedArray.from_sequences(targets)
    )


def mixed(sizes, weights, seed=3):
    return MixedDataset([corpus(*item) for item in enumerate(sizes)], weights, seed=seed)


def epoch_rows(mixture, epoch):
    """The rows of an epoch, as (corpus, row)."""
    view = mixture.for_epoch(epoch)
    selected = view.select(np.arange(len(view)))
    return [tuple(selected.source.get(row)[:2]) for row in range(len(selected))]


@given(data=st.data(), sizes=SIZES)
@settings(max_examples=30)
def test_mixture_repeats_corpora_by_weight(data, sizes):
    weights = [data.draw(WEIGHTS) for _ in sizes]
    mixture, epochs = mixed(sizes, weights), 7
    counts = Counter(row for epoch in range(epochs) for row in epoch_rows(mixture, epoch))
    for index, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        times = [counts[100 * index, row] for row in range(size)]
        assert max(times) - min(times) <= 1
        assert sum(times) == int(epochs * Fraction(str(weight)) * size)


def test_second_epoch_of_weight_half_covers_other_half():
    mixture = mixed([40], [0.5])
    first, second = set(epoch_rows(mixture, 0)), set(epoch_rows(mixture, 1))
    assert len(first) == len(second) == 20
    assert not first & second
    assert first != {(0, row) for row in range(20)}  # a random half, not the first


def test_halves_reshuffled_after_full_pass():
    mixture = mixed([40], [0.5])
    assert set(epoch_rows(mixture, 0)) != set(epoch_rows(mixture, 2))


@given(data=st.data(), sizes=SIZES, epoch=st.integers(0, 5))
@settings(max_examples=20)
def test_mixture_rows_do_not_depend_on_selection(data, sizes, epoch):
    weights = [data.draw(WEIGHTS) for _ in sizes]
    view = mixed(sizes, weights).for_epoch(epoch)
    order = np.array(data.draw(st.permutations(range(len(view)))), dtype=np.int64)
    together = view.select(order)
    lengths = view.sequence_lengths(order)
    for index, row in enumerate(order):
        alone = view.select(np.array([row]))
        assert together.source.get(index) == alone.source.get(0)
        assert together.target.get(index) == alone.target.get(0)
        assert lengths[0][index] == len(alone.source.get(0))
        assert lengths[1][index] == len(alone.target.get(0))


def test_mixture_keeps_pairs_aligned():
    view = mixed([9, 4], [1.0, 2.5]).for_epoch(1)
    selected = view.select(np.arange(len(view)))
    for row in range(len(selected)):
        assert selected.source.get(row)[:2] == selected.target.get(row)[:2]


def test_mixture_selects_no_rows():
    view = mixed([9, 4], [1.0, 2.5])
    assert len(view.select(np.arange(0))) == 0


def test_mixture_accepts_empty_corpus():
    assert sorted(epoch_rows(mixed([0, 3], [1.0, 1.0]), 0)) == [(100, row) for row in range(3)]


def test_mixture_fingerprint_depends_on_weights_and_corpora():
    one = mixed([9, 4], [1.0, 2.0])
    assert one.fingerprint(["a", "b"]) == mixed([9, 4], [1.0, 2.0]).fingerprint(["a", "b"])
    assert one.fingerprint(["a", "b"]) != one.fingerprint(["b", "a"])
    assert one.fingerprint(["a", "b"]) != mixed([9, 4], [1.0, 2.5]).fingerprint(["a", "b"])


# ----- config


def files(folder, name, lines):
    for side in ("source", "target"):
        (folder / f"{name}.{side}").write_text("".join(f"{side} {line}\n" for line in lines))
    return {
        "type": "parallel-files",
        "source": f"{folder}/{name}.source",
        "target": f"{folder}/{name}.target",
    }


def test_mixture_config_reads_corpora_once_in_order(tmp_path):
    corpora = [
        {"weight": 2.0, "source": files(tmp_path, "one", ["a", "b"])},
        {"source": files(tmp_path, "two", ["c"])},
    ]
    config = validate_settings(
        MixtureConfig, {"type": "mixture", "corpora": corpora}, location="test.yaml"
    )
    assert config.weights == [2.0, 1.0]
    pairs = [Pair(f"source {line}", f"target {line}") for line in "abc"]
    assert config.read() == list(config.stream()) == pairs


def test_mixture_config_describes_weights():
    source = SyntheticPairsConfig(name="latin", num_examples=5)
    config = MixtureConfig(
        corpora=[CorpusConfig(weight=0.5, source=source), CorpusConfig(source=source)]
    )
    assert config.describe() == (
        "0.5 x built-in latin, train, 5 pairs, seed 0; 1 x built-in latin, train, 5 pairs, seed 0"
    )
