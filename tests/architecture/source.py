"""The source as text: what the architecture tests read, without importing any of it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "heedful"

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    """Every Python file of the package."""
    return sorted(SOURCE.rglob("*.py"))


def short(path: Path) -> str:
    """A path as a reader of the repository would write it."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """The name a file is imported by."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def is_public(name: str) -> bool:
    """Whether others may use this name."""
    return not name.startswith("_")


def public_definitions(body: list[ast.stmt]) -> Iterator[Documented]:
    """The public classes and functions among some statements."""
    for node in body:
        if isinstance(node, Documented) and is_public(node.name):
            yield node
