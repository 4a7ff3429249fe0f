"""The public API as text: every public class and function, with the names of its parameters.

python tests/architecture/public_api.py --write     after a change that is meant
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.architecture.source import (
    Documented,
    is_public,
    module_name,
    parse,
    public_definitions,
    source_files,
)

LISTING = Path(__file__).with_suffix(".txt")


def listing() -> str:
    """Say the whole public API, one name a line."""
    sections = []
    for path in source_files():
        name, lines = module_name(path), list(_module(parse(path)))
        if lines and all(map(is_public, name.split("."))):
            sections.append("\n".join([name, *(f"  {line}" for line in lines)]))
    return "\n\n".join(sections) + "\n"


def _module(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield f"exports {', '.join(ast.literal_eval(node.value))}"
    for node in public_definitions(tree.body):
        yield from _class(node) if isinstance(node, ast.ClassDef) else [signature(node)]


def _class(node: ast.ClassDef) -> Iterator[str]:
    yield f"class {signature(node)}"
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and is_public(ast.unparse(each.target)):
            yield f"  {ast.unparse(each.target)}"
    for each in public_definitions(node.body):
        if not isinstance(each, ast.ClassDef):
            yield f"  {signature(each)}"


def signature(node: Documented) -> str:
    """Return the name of a class or function with its parameters."""
    if not isinstance(node, ast.ClassDef):
        return node.name + _parameters(node.args)
    made_by = [each for each in node.body if getattr(each, "name", "") == "__init__"]
    return f"{node.name}{_parameters(made_by[0].args) if made_by else ''}"


def _parameters(arguments: ast.arguments) -> str:
    names = [each.arg for each in [*arguments.posonlyargs, *arguments.args]]
    if arguments.vararg:
        names.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        names.append("*")
    names += [each.arg for each in arguments.kwonlyargs]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    return f"({', '.join(names)})"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        LISTING.write_text(listing(), encoding="utf-8")
    else:
        sys.stdout.write(listing())
