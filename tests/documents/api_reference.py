"""docs/api.md: the names for Python code, with their parameters and the first line of their docs.

python tests/documents/api_reference.py --write     after a change of them
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.architecture.public_api import signature
from tests.architecture.source import ROOT, SOURCE, parse, public_definitions

PAGE = ROOT / "docs" / "api.md"
INTRODUCTION = """# API reference

Public names by module; [python.md](python.md) shows them at work. Settings of recipes are listed by
`heedful recipes --schema`. A module that is not on this page may change without notice. Written by
`tests/documents/api_reference.py`.
"""
SECTIONS = {
    "Train and load": [
        "experiment.train",
        "runs",
        "recipes.recipe",
        "training.callbacks",
        "errors",
    ],
    "Predictors and their results": [
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
        "attention.dot_product_scores",
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
        "tokenization.position",
        "inspection.attention_map",
        "inspection.terminal_heatmap",
        "inspection.attention_trace",
    ],
}


def reference() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for title, modules in SECTIONS.items():
        parts += [f"## {title}\n", *map(_module, modules)]
    return "\n".join(parts)


def _module(name: str) -> str:
    tree = parse((SOURCE / name.replace(".", "/")).with_suffix(".py"))
    lines = [line for node in public_definitions(tree.body) for line in _definition(node)]
    return "\n".join([f"### `heedful.{name}`\n", _first_line(tree), "", *lines, ""])


def _definition(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if not isinstance(node, ast.ClassDef):
        yield f"- `{signature(node)}`: {_first_line(node)}"
    elif not node.name.endswith("Config"):  # those are settings
        yield f"- class `{signature(node)}`: {_first_line(node)}"
        for method in public_definitions(node.body):
            if not isinstance(method, ast.ClassDef) and ast.get_docstring(method):
                yield f"  - `{_method_name(method)}`: {_first_line(method)}"


def _method_name(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    names = {ast.unparse(decorator) for decorator in method.decorator_list}
    is_property = bool(names & {"property", "cached_property"})
    return method.name if is_property else signature(method)


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
