"""Fail if the code has grown beyond the limits in pyproject.toml, section `tool.heedful.limits`.

Limits are ratchets: a change that stays below one may lower it, and one that raises it says why in
docs/decisions.

    python -m tools.limits
"""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tools import code_counts, files_entered, foreign_words

ROOT = Path(__file__).resolve().parents[1]


def measure() -> dict[str, float]:
    """Return every figure that has a limit."""
    source = code_counts.count(ROOT / "src" / "heedful")
    tests = code_counts.count(ROOT / "tests")
    sizes = code_counts.largest(ROOT / "src" / "heedful")
    figures: dict[str, float] = {
        "source-lines": source.num_lines,
        "test-lines": tests.num_lines,
        "lines-of-largest-file": sizes.num_file_lines,
        "lines-of-longest-function": sizes.num_function_lines,
        "import-circles": len(source.circles),
        "single-importer-modules": len(source.single_importer),
    }
    for kind, vocabulary in foreign_words.measure(ROOT).items():
        figures[f"foreign-{kind.replace(' ', '-')}"] = round(vocabulary.percent, 1)
    for recipe in files_entered.RECIPES:
        for path, files in files_entered.count(recipe).items():
            figures[f"files-{path.replace('_', '-')}-{recipe.partition('-2')[0]}"] = len(files)
    return figures


def exceeded(figures: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Return a line for each figure above its limit, and for each that has none."""
    lines = [f"{name} has no limit" for name in figures.keys() - limits.keys()]
    lines += [f"{name} has a limit, but is not measured" for name in limits.keys() - figures.keys()]
    lines += [
        f"{name} is {figures[name]:,}, more than {limits[name]:,}"
        for name in figures.keys() & limits.keys()
        if figures[name] > limits[name]
    ]
    return sorted(lines)


def main() -> None:
    """Print the figures beside their limits."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    limits, figures = settings["tool"]["heedful"]["limits"], measure()
    for name, figure in figures.items():
        print(f"{name:36}{figure:>10,}   at most {limits.get(name, 0):>8,}")
    problems = exceeded(figures, limits)
    if problems:
        sys.exit("\n".join([*problems, "make it smaller; pyproject.toml, tool.heedful.limits"]))


if __name__ == "__main__":
    main()
