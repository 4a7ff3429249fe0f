"""The command `rate`, and the file option of rated texts; imports no torch."""

import json
from typing import Annotated

from typer import Argument, Option

from heedful.tasks.command_line import (
    PAIR_FILE_NAMES,
    FileOption,
    FileOptions,
    OutputFile,
    PairFileOption,
    PredictorLoader,
    write_lines,
)
from heedful.tasks.text_input import TextInput, read_chunks


def rate(
    load: PredictorLoader,
    file: Annotated[str, Argument(help="texts, one per line; - is standard input")] = "-",
    *,
    output: OutputFile = None,
    as_json: Annotated[bool, Option("--json", help="print JSON lines")] = False,
) -> None:
    """Rate texts: one number per line.

    Example: heedful rate runs/reviews texts.txt
    """
    rater, texts = load(), TextInput(file)
    results = (
        result
        for chunk in read_chunks(texts)
        for result in rater.predict(chunk, location=texts.location)
    )
    lines = (json.dumps(result.to_json()) if as_json else result.text for result in results)
    write_lines(lines, output)


_HELP = dict.fromkeys(("train", "dev", "test"), "rated texts: number, tab, text")
_RATED_FILE = PairFileOption(
    FileOption("rated", "path", _HELP, file_names=PAIR_FILE_NAMES),
    columns=(2, 1),
    names=("text", "rating"),
    num_columns=2,
)
FILE_OPTIONS = FileOptions((), {}, data="rated texts", model="a rater", pair_file=_RATED_FILE)
COMMANDS = (rate,)
