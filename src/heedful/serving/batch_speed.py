"""Estimates of batch times from their cost, for admission to the queue and Retry-After.

The cost of an input is the number of its characters and a constant. The CPU time of a batch is
modeled as a + b * (cost of its inputs), for each model with each set of options: a is what a batch
costs whatever is in it, b what its inputs add. Both come from the last dozen batches, by least
squares, and before the first one from examples. Seconds per CPU second come from the last few
seconds of work: a flood that slows down the machine while it arrives, as clients of the same
machine do, says little about the time after it. Length of the output and padding are not in the
model: they are why only half of the time until a deadline is promised.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

ITEM_COST = 16  # characters that an input costs besides its own
_MAX_SPEEDS = 256  # sets of options whose speed is kept
_LOAD_SECONDS = 6.0  # of work, from which seconds per CPU second are known


class BatchKey(NamedTuple):
    """The model, options and outputs that the inputs of a batch share."""

    model: str
    options: str  # JSON
    need_layers: bool
    text_only: bool


class BatchTime(NamedTuple):
    """How long a worker took for a batch."""

    seconds: float
    cpu_seconds: float  # of all its threads


def input_cost(value: Any) -> int:
    """Return the cost of an input in characters."""
    text = value if isinstance(value, str) else json.dumps(value)
    return ITEM_COST + len(text)


class BatchSpeed:
    """CPU time of a batch as a line over its cost: least squares in which older batches fade."""

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
        self._load = BatchTime(0.0, 0.0)  # sums in which older batches fade

    def set_examples(self, model: str, examples: Sequence[tuple[float, BatchTime]]) -> None:
        """Set costs and times of batches of a model with its default options."""
        pairs = [(cost, time.cpu_seconds) for cost, time in examples]
        self._examples[model] = BatchSpeed(pairs)
        if not self._load.seconds:
            seconds, cpu_seconds = map(sum, zip(*(time for _, time in examples), strict=True))
            self._load = BatchTime(_LOAD_SECONDS, _LOAD_SECONDS * cpu_seconds / seconds)

    def __contains__(self, model: str) -> bool:
        return model in self._examples

    def seconds(self, key: BatchKey, cost: float, num_batches: int = 1) -> float:
        """Estimate the time of batches that cost this together; 0 if nothing was measured."""
        speed, (seconds, cpu_seconds) = self._find(key), self._load
        return speed.seconds(cost, num_batches) * seconds / cpu_seconds if cpu_seconds else 0.0

    def _find(self, key: BatchKey) -> BatchSpeed:
        return self._measured.get(key) or self._examples.get(key.model) or BatchSpeed()

    def add(self, key: BatchKey, cost: float, time: BatchTime) -> None:
        """Add a measured batch."""
        if key not in self._measured:
            self._measured[key] = self._find(key).copy()
        self._measured[key].add(cost, time.cpu_seconds)
        fade = _LOAD_SECONDS / (_LOAD_SECONDS + time.seconds)
        sums = zip(self._load, time, strict=True)
        self._load = BatchTime(*(fade * (total + value) for total, value in sums))
        self._measured.move_to_end(key)
        if len(self._measured) > _MAX_SPEEDS:
            self._measured.popitem(last=False)
