"""`heedful classify`, and the file options of classification; imports no torch."""

import json
from collections.abc import Mapping
from typing import Annotated

import typer
from typer import Argument, Option

from heedful.tasks.command_line import EnsembleWith, FileOption, FileOptions, PredictorLoader, Split
from heedful.terminal import handle_stdout_errors


def classify(
    load: PredictorLoader,
    file: Annotated[str, Argument(help="texts, one per line; - is standard input")] = "-",
    *,
    ensemble_with: EnsembleWith = None,
    as_json: Annotated[
        bool, Option("--json", help="print JSON lines with probabilities and weights")
    ] = False,
) -> None:
    """Classify texts: one label per line, in the order of the input.

    Example: heedful classify runs/trec questions.txt

    Example: echo "Who wrote Hamlet ?" | heedful classify runs/trec --json

    Example: heedful classify runs/trec-1 --ensemble-with runs/trec-2 questions.txt
    """
    from heedful.data.text_files import display_name, read_lines

    classifier = load(ensemble_with=ensemble_with or ())
    with handle_stdout_errors():
        for result in classifier.predict(read_lines(file), location=display_name(file)):
            line = json.dumps(result.to_json(), ensure_ascii=False) if as_json else result.text
            typer.echo(line)


_HELP: Mapping[Split, str] = {
    "train": "labeled texts for a classifier: label, tab, text; also .gz and .xz",
    "dev": "labeled texts to validate on; default: some training texts",
    "test": "labeled texts for a classifier: label, tab, text",
}
_COLUMNS = {"source_column": 2, "target_column": 1, "num_columns": 2}
FILE_OPTIONS = FileOptions((FileOption("labeled", "path", _HELP),), {"type": "tsv", **_COLUMNS})
COMMANDS = (classify,)
