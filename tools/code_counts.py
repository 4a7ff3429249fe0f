"""Count files, lines, classes, import circles and frequent identifiers of a source tree.

With two trees, print them side by side: what a change of structure did to the code.

    python tools/code_counts.py [SOURCE ...]
"""

import argparse
import ast
import builtins
import io
import keyword
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src" / "heedful"
NUM_IDENTIFIERS = 20
LONG_KERNELS = {"_forward_kernel", "_memory_gradient_kernel"}  # of Triton: one launch, one function
TABLES = {
    "heedful.attention.config": "the types that scores and alignments may have",
    "heedful.cli.main": "the commands",
    "heedful.course.registry": "the sessions",
    "heedful.models.recurrent.config": "the types that wirings may have",
}
"""Modules that list others, each an entry of the table and no part of it."""
UNCOUNTED = {*keyword.kwlist, *dir(builtins), "self", "cls"}


class Counts(NamedTuple):
    """The figures of one source tree."""

    num_files: int
    num_lines: int
    num_classes: int
    single_importer: list[str]
    circles: list[list[str]]
    identifiers: Counter[str]


def count(source: Path) -> Counts:
    """Count the Python files under a package folder."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = {module_name(path, source): path for path in texts}
    imports = {name: imported_modules(trees[modules[name]], modules) - {name} for name in modules}
    exports = {
        package: exported_names(trees[path], modules)
        for package, path in modules.items()
        if path.name == "__init__.py"
    }
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, imported in imports.items():
        for other in imported | origins(trees[modules[name]], exports):
            importers[other].add(name)
    identifiers: Counter[str] = Counter()
    for text in texts.values():
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        identifiers.update(
            token.string
            for token in tokens
            if token.type == tokenize.NAME and token.string not in UNCOUNTED
        )
    return Counts(
        num_files=len(texts),
        num_lines=sum(len(text.splitlines()) for text in texts.values()),
        num_classes=sum(
            isinstance(node, ast.ClassDef) for tree in trees.values() for node in ast.walk(tree)
        ),
        single_importer=[
            name
            for name, users in importers.items()
            if len(users) == 1
            and not users & TABLES.keys()
            and modules[name].name != "__init__.py"
            and modules[name].parent == modules[min(users)].parent
        ],
        circles=find_circles(imports),
        identifiers=identifiers,
    )


class LargestSizes(NamedTuple):
    """Lines of the largest file and of the longest function."""

    num_file_lines: int
    num_function_lines: int


def largest(source: Path) -> LargestSizes:
    """Measure the largest file and the longest function, except `LONG_KERNELS`."""
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    functions = [
        node
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name not in LONG_KERNELS
    ]
    return LargestSizes(
        max(len(text.splitlines()) for text in texts),
        max((node.end_lineno or 0) - node.lineno + 1 for node in functions),
    )


def find_circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, imports inside functions included."""
    reachable = {name: set(imported) for name, imported in imports.items()}
    for middle in imports:
        for targets in reachable.values():
            if middle in targets:
                targets.update(reachable[middle])
    circles: list[list[str]] = []
    for name in sorted(imports):
        circle = sorted(other for other in reachable[name] if name in reachable[other])
        if name in circle and circle not in circles:
            circles.append(circle)
    return circles


def module_name(path: Path, source: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.Module, modules: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= submodules if submodules <= modules.keys() else {node.module, *submodules}
    return names & modules.keys()


def exported_names(tree: ast.Module, modules: dict[str, Path]) -> dict[str, str]:
    """Return the module that each name which a package exports comes from."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in modules
        for alias in node.names
    }


def origins(tree: ast.Module, exports: dict[str, dict[str, str]]) -> set[str]:
    """Return the modules whose names a module imports from their package."""
    return {
        exports[node.module][alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in exports
        for alias in node.names
        if alias.name in exports[node.module]
    }


def main() -> None:
    """Print the counts of every tree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="*", type=Path, default=[SOURCE], metavar="SOURCE")
    trees = [count(source) for source in parser.parse_args().sources]
    rows = {
        "files": [f"{tree.num_files:,}" for tree in trees],
        "lines": [f"{tree.num_lines:,}" for tree in trees],
        "classes per 1,000 lines": [
            f"{1000 * tree.num_classes / tree.num_lines:.1f}" for tree in trees
        ],
        "modules whose only importer is in their folder": [
            f"{len(tree.single_importer)}" for tree in trees
        ],
        "import circles": [f"{len(tree.circles)}" for tree in trees],
    }
    for title, values in rows.items():
        print(f"{title:48}" + "".join(f"{value:>24}" for value in values))
    print(f"the {NUM_IDENTIFIERS} most frequent identifiers")
    ranked = [tree.identifiers.most_common(NUM_IDENTIFIERS) for tree in trees]
    for rank in range(NUM_IDENTIFIERS):
        cells = (f"{names[rank][0]} {names[rank][1]}" for names in ranked)
        print(f"{rank + 1:48}" + "".join(f"{cell:>24}" for cell in cells))
    if len(trees) == 1:
        print("modules whose only importer is in their folder:")
        for name in trees[0].single_importer:
            print(f"    {name}")
        for circle in trees[0].circles:
            print(f"import circle: {', '.join(circle)}")


if __name__ == "__main__":
    main()
