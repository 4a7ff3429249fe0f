"""The rules the source keeps: each looks at one syntax tree and says what breaks it."""

import ast
from collections.abc import Iterator

from tests.architecture.source import public_definitions

PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public classes, functions and methods without a docstring."""
    if not ast.get_docstring(tree):
        yield "the module"
    for node in public_definitions(tree.body):
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            methods = public_definitions(node.body)
            yield from (f"{node.name}.{each.name}" for each in methods if _is_bare(each))


def _is_bare(method: ast.AST) -> bool:
    names = {ast.unparse(decorator).split(".")[-1] for decorator in method.decorator_list}
    return not ast.get_docstring(method) and not names & {"overload", "override", "setter"}


def no_sentence(tree: ast.Module) -> Iterator[str]:
    """Modules whose docstring does not open with a whole sentence or question."""
    opening = (ast.get_docstring(tree) or "").split("\n\n")[0]
    if not opening.endswith((".", "?", ":")) or len(opening.split()) < 3:
        yield repr(opening)


def pickles(tree: ast.Module) -> Iterator[str]:
    """What would read or write a pickle: a file that can run code when it is opened."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in PICKLERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLERS:
            yield str(node.module)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "torch.save"}:
            yield ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


def unquoted_shapes(tree: ast.Module) -> Iterator[str]:
    """Shapes such as `Int[Tensor, B]`, which no checker can read: it must be "B"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in {"Bool", "Float", "Int"}:
            written = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
            if not isinstance(written, ast.Constant):
                yield f"{ast.unparse(node)} in line {node.lineno}"


def swallowing(tree: ast.Module) -> Iterator[str]:
    """Functions with `**` parameters, which accept a misspelt argument without a word."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            and node.args.kwarg
        ):
            yield f"**{node.args.kwarg.arg} in line {node.lineno}"
