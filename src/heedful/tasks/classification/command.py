"""`heedful classify`, and the file options of classification; imports no torch."""

from collections.abc import Mapping
from typing import Annotated

from typer import Argument, Option

from heedful.tasks.command_line import (
    Delimiter,
    EncodingName,
    EnsembleWith,
    FileOptions,
    OutputFile,
    PairFileOption,
    PredictorLoader,
    Split,
)
from heedful.tasks.text_input import SourceColumn, TextInput, write_predictions


def classify(
    load: PredictorLoader,
    file: Annotated[
        str, Argument(help="texts: lines, .tsv, .csv, .jsonl or .parquet; - is standard input")
    ] = "-",
    *,
    source_column: SourceColumn = None,
    delimiter: Delimiter = None,
    encoding: EncodingName = None,
    ensemble_with: EnsembleWith = None,
    output: OutputFile = None,
    as_json: Annotated[
        bool, Option("--json", help="print JSON lines with probabilities and weights")
    ] = False,
) -> None:
    """Classify texts: one label per line, in the order of the input.

    Without a file, type the texts.

    Example: heedful classify runs/trec questions.txt
    Example: echo "Who wrote Hamlet ?" | heedful classify runs/trec --json
    Example: heedful classify runs/trec-1 --ensemble-with runs/trec-2 questions.txt
    """
    texts = TextInput(file, source_column, delimiter, encoding, _LABELED_FILE.columns[0])
    write_predictions(load(ensemble_with=ensemble_with or ()), texts, output, as_json=as_json)


_HELP: Mapping[Split, str] = {
    "train": "labeled texts for a classifier: label, tab, text; or a file as for --pairs",
    "dev": "labeled texts to validate on; default: some training texts",
    "test": "labeled texts for a classifier: label, tab, text",
}
_LABELED_FILE = PairFileOption.for_labels("labeled", "label", _HELP)
FILE_OPTIONS = FileOptions(data="texts with labels", model="a classifier", pair_file=_LABELED_FILE)
COMMANDS = (classify,)
