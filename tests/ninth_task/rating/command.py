"""The command `rate`, and the file option of rated texts; imports no torch."""

from typing import Annotated

from typer import Argument, Option

from heedful.tasks.command_line import FileOptions, OutputFile, PairFileOption, PredictorLoader
from heedful.tasks.text_input import TextInput, write_predictions


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
    write_predictions(load(), TextInput(file), output, as_json=as_json)


_HELP = dict.fromkeys(("train", "dev", "test"), "rated texts: number, tab, text")
_RATED_FILE = PairFileOption.for_labels("rated", "rating", _HELP)
FILE_OPTIONS = FileOptions(data="rated texts", model="a rater", pair_file=_RATED_FILE)
COMMANDS = (rate,)
