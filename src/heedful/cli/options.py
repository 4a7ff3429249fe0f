"""Parameters of commands that are not in their signature: data files, the run, shortcuts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

from typer import Option

from heedful.config import BaseConfig, to_overrides, validate_settings
from heedful.config.setting_aliases import SHORTCUTS as SHORTCUT_SETTINGS
from heedful.errors import ConfigError
from heedful.tasks.command_line import (
    COLUMN_OPTIONS,
    READING_OPTIONS,
    FileOption,
    Files,
    Split,
    check_local,
)
from heedful.tasks.registry import (
    all_file_options,
    file_keywords,
    files_by_split,
    remote_predictor,
)
from heedful.terminal import Device, Dtype, DtypeName, RunFolder

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from heedful.recipes import Recipe


ServerURL = Annotated[
    str | None,
    Option(metavar="URL", help="predict with the run of this name at a `heedful serve`"),
]
GoldAlignments = Annotated[
    str | None, Option(help="for aer: gold word alignments of the references")
]


def with_file_options(*splits: Split) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `files` of a command by the file options of all tasks.

    The command gets their values by split and option name, the columns with those of each split.
    """
    parameters = [
        _file_parameter(option, split)
        for split in splits
        for task_options in all_file_options()
        for option in task_options.all_options
    ]
    helps = {
        name: f"column of the {name.removesuffix('_column')} texts in a file of pairs: "
        "its number or its name"
        for name in COLUMN_OPTIONS
    }
    for task_options in all_file_options():
        helps |= task_options.columns
    columns = [_value_parameter(name, text, "COLUMN") for name, text in helps.items()]
    columns += [_value_parameter(name, *texts) for name, texts in READING_OPTIONS.items()]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            arguments = {name: kwargs.pop(name, None) for name in file_keywords(*splits)}
            command(*args, files=files_by_split(arguments, *splits), **kwargs)

        after: list[Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            is_files = parameter.name == "files"
            after += [*parameters, *columns] if is_files else [parameter]
        return _with_parameters(run, command, after)

    return decorate


def _file_parameter(option: FileOption, split: Split) -> Parameter:
    plain: Any = list[str] | None if option.is_repeatable and split == "test" else str | None
    annotation = Annotated[plain, Option(help=option.help[split], metavar="FILE")]
    return Parameter(
        option.keyword(split), Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _value_parameter(name: str, text: str, metavar: str) -> Parameter:
    annotation = Annotated[str | None, Option(help=text, metavar=metavar)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def check_dev_files(recipe: Recipe, files: Mapping[Split, Files]) -> None:
    """Raise ConfigError if a built-in corpus would be validated on files."""
    from heedful.data.sources import SyntheticConfig

    options, train = recipe.task.data.file_options, recipe.data.train
    if isinstance(train, SyntheticConfig) and (selected := options.selected(files["dev"])):
        message = f"given without training data; that of the recipe is {train.describe()}"
        raise ConfigError(selected[0].flag("dev"), message, f"add {options.usage()}")


# ----- options that stand for a setting


class Shortcut(NamedTuple):
    """An option that is short for one `--set`."""

    setting: str
    value_type: type
    help: str


SHORTCUTS = {
    "minutes": Shortcut(SHORTCUT_SETTINGS["minutes"], float, "train for this many minutes"),
    "steps": Shortcut(SHORTCUT_SETTINGS["steps"], int, "train for this many steps"),
    "seed": Shortcut(SHORTCUT_SETTINGS["seed"], int, "random seed"),
    "batch_tokens": Shortcut(
        SHORTCUT_SETTINGS["batch_tokens"], int, "tokens per batch, both sides"
    ),
    "lr": Shortcut(SHORTCUT_SETTINGS["lr"], float, "peak learning rate"),
    "metric": Shortcut(SHORTCUT_SETTINGS["metric"], str, "dev metric of the best model"),
}


def with_shortcuts(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options to a command that has `overrides`; a `--set` of the same setting wins."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, overrides: Sequence[str] | None = None, **kwargs: Any) -> None:
            values = {name: kwargs.pop(name, None) for name in names}
            selected = {name: value for name, value in values.items() if value is not None}
            short = to_overrides({SHORTCUTS[name].setting: selected[name] for name in selected})
            command(*args, overrides=[*short, *(overrides or ())], **kwargs)

        after: list[Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "overrides":
                after += [_shortcut_parameter(name, SHORTCUTS[name]) for name in names]
            after.append(parameter)
        return _with_parameters(run, command, after)

    return decorate


def _shortcut_parameter(name: str, shortcut: Shortcut) -> Parameter:
    help_text = f"{shortcut.help}; short for --set {shortcut.setting}"
    plain: Any = shortcut.value_type | None
    annotation = Annotated[plain, Option(help=help_text)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


# ----- the run of a task's command


@dataclass(frozen=True)
class RunPredictorLoader:
    """Loads the predictor of the run that a task's command names."""

    run: Path
    device: str
    task_name: str
    dtype: DtypeName = "fp32"
    server: str | None = None

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.run.name

    @property
    def device_type(self) -> str:
        """The type of the device, such as cuda."""
        from heedful.runs import resolve_device

        return resolve_device(self.device).type

    def __call__(self, *, overrides: Sequence[str] = (), ensemble_with: Sequence[Path] = ()) -> Any:
        """Load the run, or raise RunError if it is of another task."""
        check_local(self, {"--set": overrides, "--ensemble-with": ensemble_with})
        if self.server:
            return remote_predictor(self.server, self.task_name, self.name)
        from heedful.runs import load

        return load(
            self.run,
            device=self.device,
            dtype=self.dtype,
            settings=overrides,
            ensemble_with=ensemble_with,
            task=self.task_name,
        )


def with_settings(
    config_class: type[BaseConfig],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `settings` of a command by an option for each field of a config."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            values = {name: kwargs.pop(name) for name in config_class.model_fields}
            selected = {name: value for name, value in values.items() if value is not None}
            name = command.__name__
            settings = validate_settings(config_class, selected, location=name)
            command(*args, settings=settings, **kwargs)

        parameters: list[Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            is_settings = parameter.name == "settings"
            fields = map(_field_parameter, *zip(*config_class.model_fields.items(), strict=True))
            parameters += fields if is_settings else [parameter]
        return _with_parameters(run, command, parameters)

    return decorate


def _field_parameter(name: str, field: FieldInfo) -> Parameter:
    is_list, extra = field.default == (), cast("dict[str, Any]", field.json_schema_extra or {})
    option = Option(
        f"--{name.replace('_', '-')}",
        help=field.description,
        envvar=extra.get("variable"),
        show_default=field.default not in (None, False),
    )
    plain: Any = list[str] | None if is_list else field.annotation
    default = None if is_list else field.default
    annotation = Annotated[plain, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_run(task_command: Callable[..., None], task_name: str) -> Callable[..., None]:
    """Make a command of a task's function: its first parameter becomes RUN and its options."""

    def run_command(
        *args: Any, run: Path, device: str, dtype: DtypeName, server: str | None, **kwargs: Any
    ) -> None:
        load = RunPredictorLoader(run, device, task_name, dtype, server)
        task_command(load, *args, **kwargs)

    _, *parameters = inspect.signature(task_command, eval_str=True).parameters.values()
    run = Parameter("run", Parameter.POSITIONAL_OR_KEYWORD, annotation=RunFolder)
    device = Parameter("device", Parameter.KEYWORD_ONLY, default="auto", annotation=Device)
    dtype = Parameter("dtype", Parameter.KEYWORD_ONLY, default="fp32", annotation=Dtype)
    server = Parameter("server", Parameter.KEYWORD_ONLY, default=None, annotation=ServerURL)
    return _with_parameters(run_command, task_command, [run, *parameters, device, dtype, server])


def _with_parameters(
    function: Callable[..., None], documented: Callable[..., Any], parameters: Sequence[Parameter]
) -> Callable[..., None]:
    """Give a function the name and help of another, and the parameters that typer reads."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    function.__name__, function.__doc__ = documented.__name__, documented.__doc__
    return function
