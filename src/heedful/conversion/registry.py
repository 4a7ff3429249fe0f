"""The registry of importers and exporters: modules by name, imported when used.

A module of `HF_IMPORTERS` defines `read_run(folder: HFFolder) -> ImportedRun`; one of
`CHECKPOINT_IMPORTERS` defines `can_read(path) -> bool` and `read_run(path) -> ImportedRun`; one of
`EXPORTERS` defines `EXPORTER`, an `Exporter`. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import DataError, HeedfulError, check_choice

if TYPE_CHECKING:
    from heedful.conversion.interface import Exporter, ImportedRun

HF_IMPORTERS = {
    "bart": "heedful.conversion.bart",
    "bert": "heedful.conversion.bert",
    "distilbert": "heedful.conversion.bert",
    "gpt2": "heedful.conversion.gpt2",
    "heedful": "heedful.conversion.safetensors_export",
    "marian": "heedful.conversion.marian",
    "roberta": "heedful.conversion.bert",
}
"""By `model_type` of config.json."""
CHECKPOINT_IMPORTERS: dict[str, str] = {
    "checkpoints of JoeyNMT (.ckpt) and OpenNMT-py (.pt)": "heedful.conversion.checkpoint_files",
    "folders of Eole (config.json, vocab.json and model.00.safetensors)": "heedful.conversion.eole",
}
"""Files and folders of other toolkits, by the name of the toolkit; the first that can reads it."""
EXPORTERS = {
    "hf": "heedful.conversion.hf_export",
    "ct2": "heedful.conversion.ct2_export",
    "argos": "heedful.conversion.argos_export",
    "onnx": "heedful.conversion.onnx_export",
    "page": "heedful.conversion.page_export",
    "safetensors": "heedful.conversion.safetensors_export",
    "torch": "heedful.conversion.torch_export",
}


_ODD_VALUE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@contextmanager
def explain_odd_values(path: Path) -> Iterator[None]:
    """Report values of another form than a program writes them as an error of their file."""
    hint = "download or copy it again; nothing was written"
    try:
        yield
    except HeedfulError:
        raise
    except OSError as error:
        message = f"cannot be read ({error.strerror or error})"
        raise DataError(str(path), message, "check the file and its permissions") from error
    except _ODD_VALUE_ERRORS as error:
        message = f"has a value of an unexpected form ({type(error).__name__}: {error})"
        raise DataError(str(path), message, hint) from error


def read_run(path: Path) -> ImportedRun:
    """Read a model of another library as a run; raise DataError if it is not understood."""
    return _read(path, "read_run")


def read_encoder(path: Path) -> ImportedRun:
    """Read a model as a run of which only the encoder is used; other parameters may be missing.

    Importers of models that may have no output layer also define `read_encoder`.
    """
    return _read(path, "read_encoder")


def _read(path: Path, function: str) -> ImportedRun:
    from heedful.conversion.hf_folder import CONFIG, HFFolder

    if not path.exists():
        raise DataError(str(path), "no such file or folder", "name a model to import")
    for module_name in CHECKPOINT_IMPORTERS.values():
        module = import_module(module_name)
        if module.can_read(path):
            with explain_odd_values(path):
                return module.read_run(path)
    if not (path / CONFIG).is_file():
        message = "not a model that can be imported"
        kinds = ["Hugging Face folders (config.json and model.safetensors)", *CHECKPOINT_IMPORTERS]
        raise DataError(str(path), message, f"these can: {', '.join(kinds)}")
    folder = HFFolder(path)
    name = folder.model_type
    if name not in HF_IMPORTERS:
        message = f"no importer for model_type {name!r}"  # written by a program, never misspelled
        hint = f"these can be imported: {', '.join(sorted(HF_IMPORTERS))}"
        raise DataError(str(path / CONFIG), message, hint)
    module = import_module(HF_IMPORTERS[name])
    with explain_odd_values(path):
        return getattr(module, function, module.read_run)(folder)


def get_exporter(name: str) -> Exporter:
    """Return the exporter of a format."""
    check_choice(name, EXPORTERS, "format", location="--to")
    return import_module(EXPORTERS[name]).EXPORTER
