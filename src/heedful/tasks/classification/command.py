"""`heedful classify`, and the file options of classification; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from heedful.tasks.file_options import FileOption, FileOptions


def classify(
    predictor: Any,
    file: Annotated[str, typer.Argument(help="texts, one per line; - is standard input")] = "-",
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON lines with probabilities and weights")
    ] = False,
) -> Iterator[str]:
    """Classify texts: one label per line, in the order of the input.

    Example: heedful classify runs/trec questions.txt

    Example: echo "Who wrote Hamlet ?" | heedful classify runs/trec --json
    """
    from heedful.data.text_files import display_name, read_lines

    for result in predictor.predict(read_lines(file), location=display_name(file)):
        yield json.dumps(result.to_json(), ensure_ascii=False) if as_json else result.text


FILE_OPTIONS = FileOptions(
    (
        FileOption(
            "labeled",
            "path",
            {
                "train": "labeled texts for a classifier: label, tab, text; also .gz and .xz",
                "dev": "labeled texts to validate on; default: some training texts",
                "test": "labeled texts for a classifier: label, tab, text",
            },
        ),
    ),
    {"type": "tsv", "source_column": 2, "target_column": 1, "num_columns": 2},
)
COMMANDS = (classify,)
