"""The two forms of examples: pairs of texts and lines of running text.

A task names its form; reading, splitting, tokenizing and saving examples depend on nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from typing_extensions import override

from heedful.data.batch_stream import choose_held_out_rows
from heedful.data.pair_dataset import Pair
from heedful.data.token_stream import choose_held_out_lines

ExampleFormatName = Literal["pairs", "lines"]


class ExampleFormat(ABC):
    """What one example of a corpus is."""

    name: ClassVar[ExampleFormatName]
    """Also the word for a number of them."""
    description: ClassVar[str]

    @abstractmethod
    def choose_held_out(self, count: int, *, seed: int, location: str) -> Sequence[int]:
        """Return the sorted rows that become the dev set if the recipe names none."""

    @abstractmethod
    def tokenizer_texts(self, examples: Sequence[Any]) -> tuple[Sequence[str], Sequence[str]]:
        """Return the texts that the source and the target tokenizer are trained on."""

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """Return the example that was saved as this JSON value."""


class PairFormat(ExampleFormat):
    """Pairs of a source and a target text, in any order."""

    name = "pairs"
    description = "pairs of texts"

    @override
    def choose_held_out(self, count: int, *, seed: int, location: str) -> Sequence[int]:
        return choose_held_out_rows(count, seed=seed, location=location)

    @override
    def tokenizer_texts(self, examples: Sequence[Pair]) -> tuple[list[str], list[str]]:
        return [pair.source for pair in examples], [pair.target for pair in examples]

    @override
    def from_json(self, value: Any) -> Pair:
        return Pair(*value)


class LineFormat(ExampleFormat):
    """Lines of running text, in the order of the text; the dev set is its end."""

    name = "lines"
    description = "running text"

    @override
    def choose_held_out(self, count: int, *, seed: int, location: str) -> Sequence[int]:
        return choose_held_out_lines(count, location=location)

    @override
    def tokenizer_texts(self, examples: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        return examples, []

    @override
    def from_json(self, value: Any) -> str:
        return value


PAIRS, LINES = PairFormat(), LineFormat()
EXAMPLE_FORMATS: dict[str, ExampleFormat] = {PAIRS.name: PAIRS, LINES.name: LINES}
