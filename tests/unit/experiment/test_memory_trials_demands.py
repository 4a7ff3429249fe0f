"""Which batches are tried: those that would take the most."""

import numpy as np

from heedful.data.pair_dataset import InMemoryPairDataset, RaggedArray
from heedful.experiment.memory_trials import BatchShape, candidate_shapes
from heedful.recipes import Recipe, load_recipe
from tests.commands import write_recipe


def store(*lengths: tuple[int, int]) -> InMemoryPairDataset:
    sides = zip(*lengths, strict=True)
    return InMemoryPairDataset(
        *(RaggedArray.from_sequences([[5] * length for length in side]) for side in sides)
    )


def recipe(tmp_path) -> Recipe:
    return load_recipe(str(write_recipe(tmp_path)), ["training.batching.max_tokens=120"])


def test_equal_widths_give_the_widest_alone(tmp_path):
    """A begin or end symbol counts, and lengths are rounded up to even widths."""
    pairs = store(*[(length, length) for length in range(1, 10)] * 40)
    assert candidate_shapes(pairs, recipe(tmp_path)) == {BatchShape(10, 10)}


def test_the_heaviest_of_each_side_are_found(tmp_path):
    pairs = store(*[(3, 9)] * 50, *[(9, 3)] * 50, *[(5, 5)] * 50, (13, 13))
    assert candidate_shapes(pairs, recipe(tmp_path)) == {
        BatchShape(14, 14),
        BatchShape(4, 10),
        BatchShape(10, 4),
    }


def test_the_longest_of_each_side_may_come_together(tmp_path):
    assert BatchShape(14, 14) in candidate_shapes(store((13, 1), (1, 13)), recipe(tmp_path))


def test_no_batch_of_any_epoch_is_wider_than_the_widest(tmp_path):
    from heedful.data.batching import epoch_batches

    chance = np.random.default_rng(0)
    pairs = store(*map(tuple, chance.integers(1, 60, size=(300, 2)).tolist()))
    made = recipe(tmp_path)
    widest = max(candidate_shapes(pairs, made), key=sum)
    for epoch in range(5):
        for shape, _, _ in epoch_batches(pairs, made.training.batching, seed=0, epoch=epoch):
            assert shape.source_length <= widest.source_length
            assert shape.target_length <= widest.target_length
