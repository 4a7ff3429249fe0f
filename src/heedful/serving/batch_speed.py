"""Estimates of batch times from their cost, for admission to the queue and Retry-After.

The cost of an input is the number of its characters and a constant. The time of a batch is modeled
as a + b * (cost of its inputs), for each model with each set of options: a is what a batch costs
whatever is in it, b what its inputs add. Both come from the last dozen batches, by least squares,
and before the first one from examples. Length of the output, padding and other programs on the
machine are not in the model: they are why only half of the time until a deadline is promised.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

ITEM_COST = 16  # characters that an input costs besides its own
_MAX_SPEEDS = 256  # sets of options whose speed is kept


class BatchKey(NamedTuple):
    """The model, options and outputs that the inputs of a batch share."""

    model: str
    options: str  # JSON
    need_layers: bool
    text_only: bool


def input_cost(value: Any) -> int:
    """Return the cost of an input in characters."""
    text = value if isinstance(value, str) else json.dumps(value)
    return ITEM_COST + len(text)


class BatchSpeed:
    """Seconds of a batch as a line over its cost: least squares in which older batches fade."""

    def __init__(self, examples: Sequence[tuple[float, float]] = ()) -> None:
        """`examples` are costs and seconds that never fade, with little weight."""
        self._sums = [0.0] * 5
        self._examples = [0.0] * 5
        for cost, seconds in examples:
            self._add(self._examples, cost, seconds, weight=0.1)

    def copy(self) -> "BatchSpeed":
        """Return the same estimate for other options."""
        other = BatchSpeed()
        other._examples = [a + 0.1 * b for a, b in zip(self._examples, self._sums, strict=True)]
        return other

    def add(self, cost: float, seconds: float) -> None:
        """Add a measured batch."""
        self._sums = [0.9 * value for value in self._sums]
        self._add(self._sums, cost, seconds, weight=1.0)

    @staticmethod
    def _add(sums: list[float], x: float, y: float, *, weight: float) -> None:
        for index, value in enumerate((1.0, x, y, x * x, x * y)):
            sums[index] += weight * value

    def seconds(self, cost: float, num_batches: int) -> float:
        """Estimate the time of batches that cost this together; 0 if nothing was measured."""
        n, x, y, xx, xy = (a + b for a, b in zip(self._sums, self._examples, strict=True))
        if not n:
            return 0.0
        spread = n * xx - x * x
        slope = (n * xy - x * y) / spread if spread > 1e-3 * n * xx else y / x
        slope = min(max(slope, 0.0), y / x)
        return num_batches * (y - slope * x) / n + slope * cost


class BatchSpeeds:
    """The speed of each model with each set of options; at first that of its examples."""

    def __init__(self) -> None:
        self._examples: dict[str, BatchSpeed] = {}
        self._measured: OrderedDict[BatchKey, BatchSpeed] = OrderedDict()

    def set_examples(self, model: str, examples: Sequence[tuple[float, float]]) -> None:
        """Set costs and seconds of batches of a model with its default options."""
        self._examples[model] = BatchSpeed(examples)

    def __contains__(self, model: str) -> bool:
        return model in self._examples

    def __getitem__(self, key: BatchKey) -> BatchSpeed:
        return self._measured.get(key) or self._examples.get(key.model) or BatchSpeed()

    def add(self, key: BatchKey, cost: float, seconds: float) -> None:
        """Add a measured batch."""
        if key not in self._measured:
            self._measured[key] = self[key].copy()
        self._measured[key].add(cost, seconds)
        self._measured.move_to_end(key)
        if len(self._measured) > _MAX_SPEEDS:
            self._measured.popitem(last=False)
