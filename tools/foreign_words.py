"""Count words that this project uses far more often than other projects of its field.

`field_words.tsv.gz` holds, for fourteen code bases (torch, transformers, keras, fairseq2,
OpenNMT-py, JoeyNMT, Sockeye, Eole, AllenNLP, x-transformers, litgpt, torchtune, torchtitan, thinc),
how often a word occurs in identifiers and in docstrings, per million words, in the one that uses it
most. A word is foreign if it occurs at least three times as often here. Names of tests and pages
are compared with docstrings. Some foreign words are ours by right: `latin` is our corpus.

    python -m tools.foreign_words [--top N]
"""

import argparse
import csv
import gzip
import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.retired_words import WORD, docstring_words, identifiers

ROOT = Path(__file__).resolve().parents[1]
MIN_LETTERS = 3
MIN_RATE, MIN_EXCESS, MIN_RATIO = 100, 50, 3  # per million words
_OWN = """
heedful latin bahdanau luong gnmt lstmn bytenet dmca sacrebleu noun nouns verb verbs clause gender
tense phrase adjective recipe recipes typer pydantic
"""
OWN = frozenset(_OWN.split())
_NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\([^)]*\)|<[^>]*>", re.DOTALL)


class Vocabulary(NamedTuple):
    """Words of one kind of text, and which of them are foreign."""

    num_words: int
    foreign: Counter[str]

    @property
    def percent(self) -> float:
        """Foreign words of a hundred."""
        return 100 * self.foreign.total() / max(1, self.num_words)


def identifier_words(text: str) -> Iterator[str]:
    """Yield the words of all names in a source file."""
    for name, _ in identifiers(text):
        if not keyword.iskeyword(name):
            yield from WORD.findall(name)


def docstrings(text: str) -> Iterator[str]:
    """Yield the words of all docstrings in a source file."""
    return (word for word, _ in docstring_words(text))


def names_of_tests(text: str) -> Iterator[str]:
    """Yield the words of the names of all tests in a file."""
    for name in re.findall(r"^ *def test_(\w+)", text, re.MULTILINE):
        yield from WORD.findall(name)


def prose(text: str) -> list[str]:
    """Return the words of a page outside code and parentheses."""
    return re.findall(r"\b[A-Za-z]+\b", _NOT_PROSE.sub(" ", text))


def read_field() -> dict[str, dict[str, str]]:
    """Read how often the field uses each word."""
    with gzip.open(Path(__file__).with_name("field_words.tsv.gz"), "rt") as file:
        return {row["word"]: row for row in csv.DictReader(file, delimiter="\t")}


def find_foreign(words: Iterable[str], field: Mapping[str, float]) -> Vocabulary:
    """Return the words that occur three times as often as in the field."""
    counts = Counter(word.lower() for word in words if len(word) >= MIN_LETTERS)
    total = max(1, counts.total())
    foreign = {
        word: count
        for word, count in counts.items()
        if word not in OWN
        and 1e6 * count / total >= max(MIN_RATE, MIN_RATIO * field.get(word, 0) + MIN_EXCESS)
    }
    return Vocabulary(counts.total(), Counter(foreign))


def measure(root: Path = ROOT) -> dict[str, Vocabulary]:
    """Return the vocabulary of identifiers, docstrings, names of tests and pages."""
    field = read_field()
    source, tests = (
        sorted((root / "src").rglob("*.py")),
        sorted((root / "tests").rglob("test_*.py")),
    )
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    kinds: dict[str, tuple[list[Path], str, Callable[[str], Iterable[str]]]] = {
        "identifiers": (source, "names", identifier_words),
        "docstrings": (source, "docs", docstrings),
        "names of tests": (tests, "docs", names_of_tests),
        "pages": (pages, "docs", prose),
    }
    vocabularies = {}
    for name, (files, column, find_words) in kinds.items():
        rates = {word: float(row[column]) for word, row in field.items()}
        words = (word for file in files for word in find_words(file.read_text(encoding="utf-8")))
        vocabularies[name] = find_foreign(words, rates)
    return vocabularies


def main() -> None:
    """Print the fraction of foreign words, and the most frequent ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--top", type=int, default=40, help="words to list for each kind of text")
    top = parser.parse_args().top
    for name, vocabulary in measure().items():
        words = ", ".join(f"{word} {count}" for word, count in vocabulary.foreign.most_common(top))
        print(f"{name}: {vocabulary.percent:.1f} % of {vocabulary.num_words:,} words: {words}")


if __name__ == "__main__":
    main()
