"""`heedful export`: runs become models of other libraries."""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from heedful.terminal import (
    Quiet,
    RunFolder,
    echo,
    print_message,
    stderr_console,
)

To = Annotated[str, Option("--to", metavar="FORMAT", help="format to write: see above")]
FolderToWrite = Annotated[Path, Option("--out", "-o", help="folder to write")]


def export(run: RunFolder, *, to: To, out: FolderToWrite, quiet: Quiet = False) -> None:
    r"""Export a run to another library.

    The folder carries the model and its tokenizers. Before it gets its name, it is opened again
    by the other library, and its outputs for sample texts are compared with those of the run.
    What a format cannot hold is said before anything is written.

    \b
    hf           a folder of Hugging Face's transformers: pip install 'heedful[hf]'
    ct2          a folder of CTranslate2: pip install 'heedful[ct2]'
    onnx         graphs for onnxruntime: pip install 'heedful[onnx]'
    safetensors  tensors, settings and tokenizers as files
    torch        programs of torch.export

    Example: heedful export runs/de-en --to hf --out de-en-hf
    """
    from heedful.conversion.exporting import export_run

    console = stderr_console(quiet=quiet)
    compared = export_run(run, to, out, partial(print_message, console))
    echo(f"{out}: exported; {compared}")
