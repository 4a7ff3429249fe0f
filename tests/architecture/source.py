"""Source files and their syntax trees, without importing them."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "heedful"

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    """Return every Python file of the package but solutions of exercises, which students read."""
    solutions = SOURCE / "course" / "solutions"
    return sorted(path for path in SOURCE.rglob("*.py") if not path.is_relative_to(solutions))


def short(path: Path) -> str:
    """Return a path relative to the repository."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """Return the module name of a file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def walk(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a syntax tree; many rules in a row read the same tree."""
    return list(ast.walk(tree))


def is_public(name: str) -> bool:
    """Return whether a name is public."""
    return not name.startswith("_")


def public_definitions(body: list[ast.stmt]) -> Iterator[Documented]:
    """Yield the public classes and functions among statements, without overloads."""
    for node in body:
        is_definition = isinstance(node, Documented) and is_public(node.name)
        if is_definition and "overload" not in map(ast.unparse, node.decorator_list):
            yield node
