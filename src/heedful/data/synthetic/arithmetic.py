"""Arithmetic: sums in words, and what they come to.

"two times three times three equals" becomes "eighteen". Times goes before plus and minus, which
go from left to right. Results lie between zero and `MAX_NUMBER`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from heedful.data.records import Pair
from heedful.data.synthetic.corpus import Corpus
from heedful.data.synthetic.number_words import MAX_NUMBER, number_words

OPERATORS = ("plus", "minus", "times")
MAX_OPERATORS = 3
MAX_TERM = 99
MAX_FACTOR = 20


class ArithmeticCorpus(Corpus):
    """Sums of two to four numbers, in English words."""

    name = "arithmetic"
    description = "sums in English words, and what they come to"

    def draw(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw sums whose result has a name."""
        while True:
            operators = random.choices(OPERATORS, k=random.randint(1, MAX_OPERATORS))
            numbers = _draw_numbers(operators, random)
            result = evaluate(numbers, operators)
            if 0 <= result <= MAX_NUMBER:
                yield Pair(_say(numbers, operators), number_words(result))


def evaluate(numbers: Sequence[int], operators: Sequence[str]) -> int:
    """Work out a sum: products first, then from left to right."""
    terms = [numbers[0]]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "times":
            terms[-1] *= number
        else:
            terms.append(number if operator == "plus" else -number)
    return sum(terms)


def _draw_numbers(operators: Sequence[str], random: Random) -> list[int]:
    is_factor = [
        "times" in (before, after)
        for before, after in zip(["", *operators], [*operators, ""], strict=True)
    ]
    return [random.randint(0, MAX_FACTOR if factor else MAX_TERM) for factor in is_factor]


def _say(numbers: Sequence[int], operators: Sequence[str]) -> str:
    words = [number_words(number) for number in numbers]
    return " ".join(chain.from_iterable(zip(words, [*operators, "equals"], strict=True)))
