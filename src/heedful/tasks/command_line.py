"""What the command line needs of tasks: options, and how commands load a run.

It imports no torch. A task's commands are functions in its `command` module.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from typer import Option

from heedful.errors import ConfigError

Split = Literal["train", "dev", "test"]
Files = Mapping[str, Any]
"""Paths by name of the option; a list of paths where it is repeatable."""
EnsembleWith = Annotated[
    list[Path] | None, Option(metavar="RUN", help="add this run to the ensemble; repeatable")
]


class PredictorLoader(Protocol):
    """Loads the predictor of the run that a command names; can be pickled for other processes."""

    @property
    def device_type(self) -> str: ...
    def __call__(
        self, *, overrides: Sequence[str] = (), ensemble_with: Sequence[Path] = ()
    ) -> Any: ...


class FileOption(NamedTuple):
    """One file: --NAME for training or test data, --dev-NAME for validation."""

    name: str
    field: str  # of the data setting
    help: Mapping[Split, str]
    is_repeatable: bool = False  # further references, in test data

    def flag(self, split: Split = "train") -> str:
        """Return the option of a split."""
        return f"--dev-{self.name}" if split == "dev" else f"--{self.name}"


class FileOptions(NamedTuple):
    """The files of a task, which together make one data setting."""

    options: tuple[FileOption, ...]
    settings: Mapping[str, Any]  # the data setting without its files

    def usage(self, split: Split = "train") -> str:
        """Return the options as a hint shows them: "--source FILE --target FILE"."""
        return " ".join(f"{option.flag(split)} FILE" for option in self.options)

    def selected(self, files: Files) -> list[FileOption]:
        """Return the options that files are given for."""
        return [option for option in self.options if files.get(option.name)]

    def data_setting(self, files: Files, split: Split = "train") -> dict[str, Any] | None:
        """Return the data setting of these files; None if no file is given."""
        selected = self.selected(files)
        missing = [option for option in self.options if option not in selected]
        if selected and missing:
            flag, other = selected[0].flag(split), missing[0].flag(split)
            hint = f"add {other} FILE with one line per line of {flag}"
            raise ConfigError(flag, f"given without {other}", hint)
        paths = {option.field: files[option.name] for option in selected}
        first = {field: path if isinstance(path, str) else path[0] for field, path in paths.items()}
        return {**self.settings, **first} if selected else None


_TEXT_HELP: Mapping[Split, str] = {
    "train": "running text for a language model; also .gz and .xz",
    "dev": "text to validate on; default: the end of the training text",
    "test": "running text for a language model",
}
_SOURCE_HELP: Mapping[Split, str] = {
    "train": "source texts, one per line; also .gz and .xz",
    "dev": "source texts to validate on; default: some training pairs",
    "test": "source texts, one per line",
}
_TARGET_HELP: Mapping[Split, str] = {
    "train": "target texts, one per line",
    "dev": "reference texts for --dev-source",
    "test": "reference texts, one per line; repeatable",
}
TEXT_FILES = FileOptions((FileOption("text", "path", _TEXT_HELP),), settings={"type": "text"})
PARALLEL_FILES = FileOptions(
    (
        FileOption("source", "source", _SOURCE_HELP),
        FileOption("target", "target", _TARGET_HELP, is_repeatable=True),
    ),
    settings={"type": "parallel-files"},
)
