"""docs/api.md: the public API, with types, defaults and the first line of each docstring.

python tests/documents/api_reference.py --write     after a change that is meant
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.architecture.source import ROOT, SOURCE, Documented, parse, public_definitions

PAGE = ROOT / "docs" / "api.md"
INTRODUCTION = """# API reference

Public names by module; [python.md](python.md) shows them at work. Settings of recipes are listed
by `heedful recipes --schema`. Whatever is not on this page may change without notice. Written by
`tests/documents/api_reference.py`; a test fails if a name, a type or a default changes.
"""
SECTIONS = {
    "Train and load": [
        "experiment.train: train",
        "experiment.evaluation: evaluate",
        "runs: Run load load_as resolve_device",
        "recipes.recipe: Recipe load_recipe recipe_names read_recipe_text",
        "training.callbacks",
        "errors",
    ],
    "Use a server": ["client"],
    "Predictors and their results": [
        "tasks.prediction: Prediction Predictor BatchPredictor",
        "tasks.translation.translator",
        "decoding.requests",
        "decoding.translation",
        "tasks.language_modeling.generator",
        "tasks.classification.predictor",
        "tasks.tagging.predictor",
        "tasks.masked_language_modeling.task",
    ],
    "Attention": [
        "attention.memory",
        "attention.masks",
        "attention.attention",
        "attention.multi_head",
        "attention.scores",
        "attention.additive_scores",
        "attention.relative_scores",
        "attention.alignments",
        "attention.local_alignment",
        "attention.monotonic_alignment",
        "attention.hard_alignment",
        "attention.readouts",
        "attention.positional_encoding",
    ],
    "Layers with the interfaces of Keras and torch.nn": [
        "nn.keras_attention",
        "nn.keras_multi_head",
        "nn.torch_multihead",
        "nn.mechanism",
    ],
    "Layers and models": [
        "layers.pooling",
        "layers.self_attention",
        "layers.sublayers",
        "layers.transformer",
        "models.base",
        "models.encoder_decoder",
        "models.language_model",
    ],
    "Markov models": ["markov.chain", "markov.emissions", "markov.hmm"],
    "Data and inspection": [
        "data.text.batching",
        "tokenization.tokenizer",
        "tokenization.special_texts",
        "inspection.attention_map",
        "inspection.terminal_figures",
        "inspection.attention_trace",
    ],
}


def reference() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for title, modules in SECTIONS.items():
        parts += [f"## {title}\n", *map(_module, modules)]
    return "\n".join(parts)


def _module(entry: str) -> str:
    name, _, listed = entry.partition(": ")
    path = f"{name.replace('.', '/')}.py"
    tree = parse(SOURCE / path)
    names = listed.split()
    chosen = [node for node in public_definitions(tree.body) if node.name in names or not names]
    lines = [line for node in chosen for line in _definition(node)]
    heading = f"### [`heedful.{name}`](../src/heedful/{path})\n"
    return "\n".join([heading, _first_line(tree), "", *lines, ""])


def _definition(node: Documented) -> Iterator[str]:
    if not isinstance(node, ast.ClassDef):
        yield f"- `{_signature(node)}`: {_first_line(node)}"
    elif not node.name.endswith("Config"):  # those are settings
        yield f"- class `{_signature(node)}`: {_first_line(node)}"
        for method in public_definitions(node.body):
            if not isinstance(method, ast.ClassDef) and ast.get_docstring(method):
                yield f"  - `{_signature(method)}`: {_first_line(method)}"


def _signature(node: Documented) -> str:
    """Return a name with parameters, types and defaults; of a property, its type."""
    if isinstance(node, ast.ClassDef):
        built_by = [method for method in node.body if getattr(method, "name", "") == "__init__"]
        return node.name + (_parameters(built_by[0].args) if built_by else _fields(node))
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    returns = ast.unparse(node.returns) if node.returns else "None"
    if decorators & {"property", "cached_property"}:
        return f"{node.name}: {returns}"
    return f"{node.name}{_parameters(node.args)} -> {returns}"


def _parameters(arguments: ast.arguments) -> str:
    text = ast.unparse(arguments)
    for first in ("self", "cls"):
        text = text.removeprefix(first).removeprefix(", ") if text.startswith(first) else text
    return f"({text})"


def _fields(node: ast.ClassDef) -> str:
    """Return the fields of a dataclass or named tuple as parameters."""
    bases = {ast.unparse(base) for base in node.bases}
    is_dataclass = any("dataclass" in ast.unparse(name) for name in node.decorator_list)
    if "NamedTuple" not in bases and not is_dataclass:
        return ""
    fields = [
        ast.unparse(field)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation)
    ]
    return f"({', '.join(fields)})"


def _first_line(node: ast.AST) -> str:
    text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|").strip()


def missing_docs() -> list[str]:
    """Return the names of the page that have no line."""
    return [line for line in reference().splitlines() if line.endswith(": ")]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(reference(), encoding="utf-8")
    else:
        sys.stdout.write(reference())
