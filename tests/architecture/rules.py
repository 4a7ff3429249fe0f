"""Rules for the source: each takes one syntax tree and yields what breaks it."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.architecture.source import public_definitions, walk

PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNDOCUMENTED = {"build"}
"""Methods whose name says everything."""
BRITISH = re.compile(
    r"(?i)(?:normalis|tokenis|initialis|optimis|penalis|regularis|randomis|symmetris|"
    r"summaris|recognis|generalis|serialis|parametris|behaviour|colour|neighbour|favour|labell|"
    r"modell(?:ing|ed)|centre(?!d?point))\w*"  # from its stem on
)

PLURALS = re.compile(
    r" (?:(?!(?:of|and|in|to|as|by|needs) )[\w-]+ )?(?:captions|characters|columns|epochs|examples|"
    r"files|forecasts|gates|images|labels|layers|lines|links|minutes|models|pairs|paths|images|"
    r"rows|runs|samples|seconds|sentences|shards|steps|symbols|systems|tags|tensors|texts|tokens|"
    r"values|windows|words)\b"
)
NO_COUNTS = re.compile(
    r".*(name\w*|suffix|folder|vocab_size|max_minutes|axis_names\[1\]|sizes\.\w+)"
)
"""Texts, and numbers that cannot be 1."""


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public classes, functions and methods without a docstring; overrides need none."""
    if not ast.get_docstring(tree):
        yield "the module"
    for node in public_definitions(tree.body):
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for method in public_definitions(node.body):
                if method.name not in UNDOCUMENTED and _needs_docstring(method):
                    yield f"{node.name}.{method.name}"


def _needs_docstring(method: ast.AST) -> bool:
    names = {ast.unparse(decorator).split(".")[-1] for decorator in method.decorator_list}
    is_attribute = "property" in names and ast.unparse(method.body) == "..."  # of a Protocol
    is_explained = ast.get_docstring(method) or names & {"overload", "override", "setter"}
    return not is_explained and not is_attribute


def no_statement(tree: ast.Module) -> Iterator[str]:
    """Modules whose docstring does not open with a whole sentence; a question is none."""
    opening = (ast.get_docstring(tree) or "").split("\n\n")[0]
    if not opening.endswith((".", ":")) or len(opening.split()) < 3:
        yield repr(opening)


def british(tree: ast.Module) -> Iterator[str]:
    """Words in identifiers and strings that torch and its users spell otherwise."""
    for node in walk(tree):
        for word in vars(node).values():
            if isinstance(word, str) and (match := BRITISH.search(word)):
                yield f"{match.group()} in line {getattr(node, 'lineno', 0)}"


def generic_alias_calls(tree: ast.Module) -> Iterator[str]:
    """Calls such as `list[Tensor]()`, which torch.compile cannot trace."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            name = ast.unparse(node.func.value)
            if name in {"list", "dict", "set", "tuple", "defaultdict", "deque", "Counter"}:
                yield f"{ast.unparse(node.func)}() in line {node.lineno}"


def pickles(tree: ast.Module) -> Iterator[str]:
    """Code that would read or write a pickle: a file that can run code when it is opened.

    With `weights_only=True`, torch.load reads tensors and runs nothing.
    """
    safe = {
        node.func
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and "weights_only=True" in [ast.unparse(keyword) for keyword in node.keywords]
        and ast.unparse(node.func) == "torch.load"
    }
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in PICKLERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLERS:
            yield str(node.module)
        elif node in safe:
            continue
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "torch.save"}:
            yield ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


def unquoted_shapes(tree: ast.Module) -> Iterator[str]:
    """Shapes such as `Int[Tensor, B]`, which no checker can read: it must be "B"."""
    for node in walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in {"Bool", "Float", "Int"}:
            shape = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
            if not isinstance(shape, ast.Constant):
                yield f"{ast.unparse(node)} in line {node.lineno}"


def keyword_dicts(tree: ast.Module) -> Iterator[str]:
    """Functions with `**` parameters, which accept a misspelled argument silently."""
    for node in walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            and node.args.kwarg
        ):
            yield f"**{node.args.kwarg.arg} in line {node.lineno}"


def class_names(tree: ast.Module) -> Iterator[str]:
    """Public classes of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def namesake_not_first(tree: ast.Module, names: set[str]) -> str | None:
    """Return the class that precedes the one with a name in `names`, without regard to case.

    Classes that it extends and values that it passes around (named tuples) may precede it.
    """
    classes = [node for node in public_definitions(tree.body) if isinstance(node, ast.ClassDef)]
    bases = {node.name: {ast.unparse(base) for base in node.bases} for node in classes}
    namesake = next((name for name in bases if name.lower() in names), None)
    if namesake is None:
        return None
    extended = set(bases[namesake])
    for name in reversed(bases):
        extended |= bases[name] if name in extended else set()
    first = (name for name in bases if name not in extended and "NamedTuple" not in bases[name])
    return None if (name := next(first, namesake)) == namesake else name


def unnamed_modules(docstring: str, modules: set[str]) -> set[str]:
    """Return the modules of a package that its docstring does not name in backticks."""
    return modules - set(re.findall(r"`(\w+)`", docstring))


def uncounted_plurals(tree: ast.Module) -> Iterator[str]:
    """Numbers before a plural in f-strings: `format_count` would not print "1 pairs"."""
    for node in walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, text in pairwise(node.values):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    noun = PLURALS.match(text.value)
                    if noun and _may_be_one(value):
                        yield f"{ast.unparse(value.value)}{noun.group()}"


def _may_be_one(value: ast.FormattedValue) -> bool:
    expression = ast.unparse(value.value)
    is_decimal = value.format_spec is not None and "." in ast.unparse(value.format_spec)
    is_constant = expression.split(".")[-1].isupper()
    return not (is_decimal or is_constant or NO_COUNTS.fullmatch(expression))
