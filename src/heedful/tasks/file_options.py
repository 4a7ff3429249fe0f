"""Files on the command line that stand for a data setting of the recipe; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from heedful.errors import ConfigError


class FileOption(NamedTuple):
    """One file: --NAME for training or test data, --dev-NAME for validation."""

    name: str
    field: str  # of the data setting
    help: str
    dev_help: str

    def flag(self, split: str = "train") -> str:
        """Return the option of a split."""
        return f"--dev-{self.name}" if split == "dev" else f"--{self.name}"


class FileOptions(NamedTuple):
    """The files of a task, which together make one data setting."""

    options: tuple[FileOption, ...]
    settings: Mapping[str, Any]  # the data setting without its files

    def usage(self, split: str = "train") -> str:
        """Return the options as a hint shows them: "--source FILE --target FILE"."""
        return " ".join(f"{option.flag(split)} FILE" for option in self.options)

    def data_setting(
        self, files: Mapping[str, str | None], split: str = "train"
    ) -> dict[str, Any] | None:
        """Return the data setting of these files by option name; None if none is given."""
        given = [option for option in self.options if files.get(option.name)]
        if not given:
            return None
        for option in self.options:
            if option not in given:
                raise ConfigError(
                    given[0].flag(split),
                    f"given without {option.flag(split)}",
                    f"add {option.flag(split)} FILE, whose lines belong to these",
                )
        paths = {option.field: files[option.name] for option in self.options}
        return {**self.settings, **paths}

    def override(self, files: Mapping[str, str | None], split: str = "train") -> list[str]:
        """Return the recipe override that names these files, or nothing."""
        setting = self.data_setting(files, split)
        return [f"data.{split}={json.dumps(setting)}"] if setting else []


TEXT_FILES = FileOptions(
    (
        FileOption(
            "text",
            "path",
            "running text for a language model; also .gz and .xz",
            "text to validate on; default: the end of the training text",
        ),
    ),
    {"type": "text"},
)
PARALLEL_FILES = FileOptions(
    (
        FileOption(
            "source",
            "source",
            "source texts, one per line; also .gz and .xz",
            "source texts to validate on; default: some training pairs",
        ),
        FileOption(
            "target", "target", "target texts, one per line", "reference texts for --dev-source"
        ),
    ),
    {"type": "parallel-files"},
)
