"""The command-line side of tasks: options, and how commands load a run.

It imports no torch. A task's commands are functions in its `command` module.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self

from typer import Option

from heedful.data.text.columnar_files import columnar_format
from heedful.data.text_files import (
    ALSO_COMPRESSED,
    COMPRESSION_SUFFIXES,
    TRANSLATION_SUFFIXES,
    file_suffix,
)
from heedful.errors import ConfigError, check
from heedful.terminal import echo, handle_stdout_errors, save_text

Split = Literal["train", "dev", "test"]
Files = Mapping[str, Any]
"""Paths by name of the option; a list of paths where it is repeatable."""
EnsembleWith = Annotated[
    list[Path] | None, Option(metavar="RUN", help="add this run to the ensemble; repeatable")
]
OutputFile = Annotated[Path | None, Option("--output", "-o", help="write to this file instead")]


class PredictorLoader(Protocol):
    """Loads the predictor of the run that a command names; can be pickled for other processes."""

    @property
    def name(self) -> str: ...
    @property
    def server(self) -> str | None: ...
    @property
    def device_type(self) -> str: ...
    def __call__(
        self, *, overrides: Sequence[str] = (), ensemble_with: Sequence[Path] = ()
    ) -> Any: ...


def check_local(load: PredictorLoader, options: Mapping[str, object]) -> None:
    """Raise ConfigError for options that a server does not have, if they are set."""
    for option, value in options.items():
        message, hint = "works only without --server", f"remove {option} or --server"
        check(load.server is None or not value, option, message, hint)


class FileOption(NamedTuple):
    """One file: --NAME for training or test data, --dev-NAME for validation."""

    name: str
    field: str  # of the data setting
    help: Mapping[Split, str]
    is_repeatable: bool = False  # further references, in test data
    file_names: tuple[str, ...] = ()  # in a folder of data: "{split}.tsv"

    def flag(self, split: Split = "train") -> str:
        """Return the option of a split."""
        return f"--dev-{self.name}" if split == "dev" else f"--{self.name}"

    def keyword(self, split: Split = "train") -> str:
        """Return the argument of a split in Python."""
        return self.flag(split).removeprefix("--").replace("-", "_")


class PairFileOption(NamedTuple):
    """A file of pairs, whose format follows from its name."""

    option: FileOption
    columns: tuple[int, int]  # default numbers of source and target column
    names: tuple[str, str]  # default names of them, where columns have no numbers
    num_columns: int | None = None  # of the default columns
    has_columns: bool = True  # of sources and targets

    @classmethod
    def for_labels(cls, name: str, label: str, texts: Mapping[Split, str]) -> Self:
        """Return the option of a file of labels, each before its text; `texts` are its help."""
        option = FileOption(name, "path", texts, file_names=PAIR_FILE_NAMES)
        return cls(option, columns=(2, 1), names=("text", label), num_columns=2)

    def data_setting(self, files: Files) -> dict[str, Any]:
        """Return the data setting of the file, with the columns that are given."""
        path = files[self.option.name]
        data_type = _file_type(path) or "tsv"
        setting: dict[str, Any] = {"type": data_type, "path": path}
        are_chosen = any(map(files.get, COLUMN_OPTIONS))
        defaults: Sequence[int | str | None] = self.names
        if data_type in TABLE_TYPES:
            has_names = not are_chosen and _has_usual_names(add_reading_options(setting, files))
            defaults = (None, None) if has_names else self.columns
            if not (are_chosen or has_names) and self.num_columns:
                setting["num_columns"] = self.num_columns
        elif data_type in TRANSLATION_TYPES:  # whose columns are languages
            message, hint = "contains translations, no labels", "train a translator with --pairs"
            check(not self.num_columns, path, message, hint)
            return setting | {name: files[name] for name in COLUMN_OPTIONS if files.get(name)}
        for name, default in zip(COLUMN_OPTIONS, defaults, strict=True):
            column: Any = files.get(name) or default
            setting[name] = column if data_type == "jsonl" else parse_column(column, name)
        return setting


class ConllFileOption(NamedTuple):
    """A CoNLL file of words and tags."""

    option: FileOption
    has_columns: bool = True

    def data_setting(self, files: Files) -> dict[str, Any]:
        """Return the data setting of the file, with the columns that are given."""
        columns = {name: parse_column(files.get(name), name) for name in COLUMN_OPTIONS}
        path = files[self.option.name]
        if (data_type := _file_type(path)) in COLUMNAR_TYPES:
            names = zip(COLUMN_OPTIONS, ("tokens", "tags"), strict=True)
            columns = {name: columns[name] or default for name, default in names}
            return {"type": data_type, "path": path, **columns}
        return {"type": "conll", "path": path, **columns}


class TextFileOption(NamedTuple):
    """A file of running text, or of a column of texts, by its name."""

    option: FileOption
    has_columns: bool = False

    def data_setting(self, files: Files) -> dict[str, Any]:
        """Return the data setting of the file, with the column that is given."""
        path, column = files[self.option.name], files.get(TEXT_COLUMN)
        if _file_type(path) in COLUMNAR_TYPES:
            column = {TEXT_COLUMN: parse_column(column, TEXT_COLUMN)} if column else {}
            return {"type": "text-column", "path": path, **column}
        message = f"{path} is a file of lines, which has no columns"
        hint = "leave it out, or give a .parquet or .arrow file, or a folder of datasets"
        check(column is None, column_flag(TEXT_COLUMN), message, hint)
        return {"type": "text", "path": path}


class FileOptions(NamedTuple):
    """The files of a task, which together make one data setting; or a file of pairs."""

    options: tuple[FileOption, ...] = ()
    settings: Mapping[str, Any] = {}  # the data setting without its files
    pair_file: PairFileOption | ConllFileOption | TextFileOption | None = None
    columns: Mapping[str, str] = {}  # options that name a column, with their help
    optional: tuple[FileOption, ...] = ()  # further files that the data may have
    folder_settings: Mapping[str, Any] = {}  # the data setting if a folder is named, if it may be
    data: str = "data of this task"  # what the files contain
    model: str = "a model of this task"  # what is trained on them

    @property
    def all_options(self) -> tuple[FileOption, ...]:
        """All options for files."""
        pair_file = [self.pair_file.option] if self.pair_file else []
        return (*self.options, *pair_file, *self.optional)

    @property
    def single_file(self) -> FileOption:
        """The option that is enough on its own."""
        return self.pair_file.option if self.pair_file else self.options[0]

    def usage(self, split: Split = "train") -> str:
        """Return the options as a hint shows them: "--source FILE --target FILE"."""
        options = self.options or self.all_options
        return " ".join(f"{option.flag(split)} FILE" for option in options)

    def selected(self, files: Files) -> list[FileOption]:
        """Return the options that files are given for."""
        return [option for option in self.all_options if files.get(option.name)]

    def data_setting(self, files: Files, split: Split = "train") -> dict[str, Any] | None:
        """Return the data setting of these files; None if no file is given."""
        if not self.selected(files):
            return None
        return add_reading_options(self._file_setting(files, split), files)

    def _file_setting(self, files: Files, split: Split) -> dict[str, Any]:
        selected = self.selected(files)
        flag = selected[0].flag(split)
        if self.pair_file and self.pair_file.option in selected:
            other = self.pair_file.option.flag(split)
            hint = f"leave out {other}, or give nothing else"
            check(len(selected) == 1, flag, f"given together with {other}", hint)
            return self.pair_file.data_setting(files)
        missing = [option.flag(split) for option in self.options if option not in selected]
        if missing:
            is_parallel = selected[0] in self.options
            hint = f"add {missing[0]} FILE" + f" with one line per line of {flag}" * is_parallel
            raise ConfigError(flag, f"given without {missing[0]}", hint)
        paths = {option.field: files[option.name] for option in selected}
        first = {field: path if isinstance(path, str) else path[0] for field, path in paths.items()}
        columns = {name: files[name] for name in self.columns if files.get(name)}
        is_folder = bool(self.folder_settings) and Path(first[self.options[0].field]).is_dir()
        settings = self.folder_settings if is_folder else self.settings
        return {**settings, **first, **columns}

    def folder_setting(self, folder: Path, split: Split) -> dict[str, Any] | None:
        """Return the data setting of the files of a split in a folder; None if it has none."""
        for options in self._file_groups():
            for names in zip(*(option.file_names for option in options), strict=True):
                for suffix in ("", *COMPRESSION_SUFFIXES):
                    paths = [folder / f"{name.format(split=split)}{suffix}" for name in names]
                    if all(path.exists() for path in paths):
                        files = zip(
                            (option.name for option in options), map(str, paths), strict=True
                        )
                        return self.data_setting(dict(files), split)
        return None

    def expected_files(self, split: Split = "train") -> str:
        """Return the names of files in a folder of data, for messages."""
        groups = [[option.file_names[0] for option in group] for group in self._file_groups()]
        return ", or ".join(" and ".join(names) for names in groups).format(split=split)

    def _file_groups(self) -> list[tuple[FileOption, ...]]:
        """Return the options that make a data setting together."""
        groups = [self.options, (self.pair_file.option,) if self.pair_file else ()]
        return [group for group in groups if group]


def add_reading_options(setting: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """Return a data setting with the encoding and the delimiter that are given, if it has them."""
    setting = dict(setting)
    if (delimiter := files.get("delimiter")) and setting["type"] in DELIMITED_TYPES:
        setting["delimiter"] = "\t" if delimiter in ("tab", "\\t") else delimiter
        if setting["type"] == "tsv":  # which has no other delimiter than tabs
            setting["type"] = "csv"
    if (encoding := files.get("encoding")) and setting["type"] in ENCODED_TYPES:
        setting["encoding"] = encoding
    return setting


def _has_usual_names(setting: Mapping[str, Any]) -> bool:
    """Return whether the first line of a table names its columns, such as text and label."""
    from heedful.data.text.table_files import CSVConfig, TSVConfig

    config = CSVConfig if setting["type"] == "csv" else TSVConfig
    return config.model_validate(setting).has_usual_names()


def column_flag(name: str) -> str:
    """Return the option of a column setting."""
    return f"--{name.replace('_', '-')}"


def parse_column(column: Any, name: str) -> Any:
    """Return a column as a number, if it is one; `name` is the setting that an error names."""
    if not str(column).isdecimal():
        return column
    hint = "give the number of the column, or its name"
    check(int(column) > 0, column_flag(name), "columns are counted from 1", hint)
    return int(column)


def _file_type(path: str) -> str | None:
    """Return the type of the data setting of a file, by its name; a folder is one of datasets."""
    return columnar_format(path) or _FILE_TYPES.get(file_suffix(path))


COLUMN_OPTIONS = ("source_column", "target_column")
PAIR_FILE_NAMES = tuple(f"{{split}}.{end}" for end in ("tsv", "csv", "jsonl", "parquet", "arrow"))
TEXT_COLUMN = "text_column"
COLUMNAR_TYPES = ("parquet", "arrow", "datasets")
TABLE_TYPES = ("tsv", "csv")
TRANSLATION_TYPES = ("tmx", "xliff", "po")
DELIMITED_TYPES = (*TABLE_TYPES, "series", "captions")
ENCODED_TYPES = (*DELIMITED_TYPES, "parallel-files", "text", "jsonl", "conll", "po")
READING_OPTIONS = {
    "encoding": ("encoding of the files, such as cp1252; default: utf-8", "NAME"),
    "delimiter": ("what separates the columns of a table: , ; | or tab", "CHARACTER"),
}
EncodingName = Annotated[str | None, Option(metavar="NAME", help=READING_OPTIONS["encoding"][0])]
Delimiter = Annotated[str | None, Option(metavar="CHARACTER", help=READING_OPTIONS["delimiter"][0])]
_FILE_TYPES = {
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    **TRANSLATION_SUFFIXES,
}
_TEXT_HELP: Mapping[Split, str] = {
    "train": "running text for a language model: lines, .parquet, .arrow or a folder of datasets",
    "dev": "text to validate on; default: the end of the training text",
    "test": "running text for a language model",
}
_SOURCE_HELP: Mapping[Split, str] = {
    "train": f"source texts, one per line; {ALSO_COMPRESSED}",
    "dev": "source texts to validate on; default: some training pairs",
    "test": "source texts, one per line",
}
_TARGET_HELP: Mapping[Split, str] = {
    "train": "target texts, one per line",
    "dev": "reference texts for --dev-source",
    "test": "reference texts, one per line; repeatable",
}
_PAIRS_HELP: Mapping[Split, str] = {
    "train": "both texts in one file: .tsv, .csv, .jsonl, .parquet, .arrow, .tmx, .xliff, .po",
    "dev": "pairs to validate on, in a file as for --pairs",
    "test": "sources and references in one file: .tsv, .csv, .jsonl or .parquet",
}
TEXT_FILES = FileOptions(
    settings={"type": "text"},
    data="running text",
    model="a language model",
    pair_file=TextFileOption(
        FileOption(
            "text",
            "path",
            _TEXT_HELP,
            file_names=("{split}.txt", "{split}.parquet", "{split}.arrow"),
        )
    ),
    columns={TEXT_COLUMN: "column of the texts of a Parquet or Arrow file or a datasets folder"},
)
PARALLEL_FILES = FileOptions(
    (
        FileOption("source", "source", _SOURCE_HELP, file_names=("{split}.source", "{split}.src")),
        FileOption(
            "target",
            "target",
            _TARGET_HELP,
            is_repeatable=True,
            file_names=("{split}.target", "{split}.tgt"),
        ),
    ),
    settings={"type": "parallel-files"},
    data="parallel texts",
    model="a translator",
    pair_file=PairFileOption(
        FileOption("pairs", "path", _PAIRS_HELP, file_names=PAIR_FILE_NAMES),
        columns=(1, 2),
        names=("source", "target"),
    ),
)


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Write lines to a file, or print them as they come."""
    if output is not None:
        save_text(output, "".join(f"{line}\n" for line in lines))
        return
    with handle_stdout_errors():
        for line in lines:
            echo(line)
