"""List words of the retired vocabulary that are left in the source (docs/decisions/0015).

Words are searched in identifiers and, with `--docstrings`, in docstrings. `ALLOWED` holds the
identifiers that stay, each with its reason; an architecture test checks that there are no others
and that every pattern is used.

    python tools/retired_words.py [--docstrings]
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "heedful"
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_WORDS = """
tell tells told telling say says said ask asks asked asking look looks looked looking hear heard
think thinks thought know knows known stand stands stood face faces faced place places placed
found wanted own owns wishes wish company family families room tape tapes exam exams parting
partings held hold holds desk leg legs strand strands front sibling siblings each given made
whoever nobody somebody longest shortest foretell foretold
"""
RETIRED = frozenset(_WORDS.split())
ALLOWED = {
    r"_?\w*held_out\w*|_?\w*HELD_OUT\w*": "held-out data is the word of the field",
    r"(is_|num_|_|_check_)?known(_id|_words|_duplicates)?|_?\w+_if_known": "not unknown or missing",
    r"(pareto_)?front(_note)?": "the Pareto front",
    r"(zip_)?longest(_first)?|_longest_shape": "an element of a batch, not a length",
    r"_?(optional_)?places?|_PLACES|prepositions_by_place": "adverbials of place in Latin clauses",
    r"siblings": "children of one node of a tree, or folders of one folder",
    r"FileNotFoundError|connection_made|tell": "names of Python",
    r"found_inf": "what torch.amp.GradScaler gives an optimizer",
}
"""Patterns of identifiers that stay, with the reason."""


def identifiers(text: str) -> Iterator[tuple[str, int]]:
    """Yield the names of a source file with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.string, token.start[0]


def docstring_words(text: str) -> Iterator[tuple[str, int]]:
    """Yield the words of all docstrings with the line of their definition."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for word in re.findall(r"[A-Za-z]+", ast.get_docstring(node) or ""):
                yield word.lower(), getattr(node, "lineno", 1)


def is_retired(name: str) -> bool:
    """Return whether an identifier contains a retired word and is not allowed."""
    words = {word.lower() for word in WORD.findall(name)}
    return bool(words & RETIRED) and not any(re.fullmatch(pattern, name) for pattern in ALLOWED)


def main() -> None:
    """Print every use, the most frequent first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docstrings", action="store_true", help="search docstrings, too")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        uses = [(name, line) for name, line in identifiers(text) if is_retired(name)]
        if arguments.docstrings:
            uses += [(word, line) for word, line in docstring_words(text) if word in RETIRED]
        for name, line in uses:
            counts[name] += 1
            examples.setdefault(name, f"{path.relative_to(SOURCE)}:{line}")
    for name, count in counts.most_common():
        print(f"{count:5}  {name:32}{examples[name]}")
    print(f"{sum(counts.values())} uses of {len(counts)} words", file=sys.stderr)


if __name__ == "__main__":
    main()
