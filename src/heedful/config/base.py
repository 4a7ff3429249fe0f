"""The base class of configs, what settings it accepts, and arguments checked like settings.

A config with alternatives has a `type`; alternatives are fields or lists in fields. The
functions below read this structure from the annotations, so it is written down once. `check_types`
checks the arguments of Python functions against theirs. Invariant: a function gets the arguments
that it was called with, not converted ones.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from inspect import signature
from reprlib import repr as short_repr
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from heedful.errors import ArgumentError

Settings = dict[str, Any]
"""Settings as they are in YAML, before validation."""
SettingRole = Literal["limit", "execution", "seed", "batching"]
"""Role of a training setting that does not change what one step learns: when training stops, how
it runs and is monitored, or the random seed. A field has its role as metadata:
`Annotated[int, "limit"]`."""
SettingPath = tuple[str | int, ...]


class BaseConfig(BaseModel):
    """Validated, immutable settings; subclasses `build` the object they describe."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def options(self) -> dict[str, Any]:
        """Return the fields except `type`: the keyword arguments of the class that is built."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "type"}


class ModuleConfig(BaseConfig):
    """Config of one class, whose constructor takes the fields and those sizes that it names.

    Configs of this kind among the fields are built with the same sizes.
    """

    module_class: ClassVar[Callable[..., Any]]

    def build(self, **sizes: int | None) -> Any:
        names = signature(self.module_class).parameters
        options = {name: size for name, size in sizes.items() if name in names}
        for name, option in self.options().items():
            options[name] = option.build(**sizes) if isinstance(option, ModuleConfig) else option
        return self.module_class(**options)


def with_default_type(type_name: str) -> BeforeValidator:
    """Let a section without `type` have this one, which must be the first alternative."""
    return BeforeValidator(
        lambda section: {"type": type_name, **section} if isinstance(section, dict) else section
    )


def allow_bare_type(configs: Any) -> BeforeValidator:
    """Accept a string as the section of that type, of a union of configs, with its defaults."""
    type_names = tuple(map(type_of, types_in(configs)))
    return BeforeValidator(
        lambda section: {"type": section} if isinstance(section, str) else section,
        json_schema_input_type=Literal[type_names] | configs,
    )


class SettingLocation(NamedTuple):
    """A position in the settings."""

    path: SettingPath  # as the user wrote it
    candidates: Sequence[type[BaseConfig]]  # configs that are allowed there
    parents: Sequence[type[BaseConfig]]  # configs that have this setting


def types_in(annotation: Any) -> list[Any]:
    """Return the plain types of an annotation."""
    if get_origin(annotation) is Annotated:
        return types_in(get_args(annotation)[0])
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return [plain for part in parts for plain in types_in(part)] if parts else [annotation]


def configs_of(config_class: type[BaseConfig], name: str) -> list[type[BaseConfig]]:
    """Return the configs that a setting may contain."""
    field = config_class.model_fields.get(name)
    types = types_in(field.annotation) if field else []
    return [plain for plain in types if isinstance(plain, type) and issubclass(plain, BaseConfig)]


def type_of(config_class: type[BaseConfig]) -> str | None:
    """Return the `type` of a config class, None if it has no alternatives."""
    field = config_class.model_fields.get("type")
    return get_args(field.annotation)[0] if field else None


def find_config(
    config_classes: Sequence[type[BaseConfig]], section: Any
) -> type[BaseConfig] | None:
    """Return the config class of a section: the first, if the section has no `type`."""
    if len(config_classes) == 1:
        return config_classes[0]
    default = type_of(config_classes[0]) if config_classes else None
    type_name = section.get("type", default) if isinstance(section, Mapping) else None
    return next((config for config in config_classes if type_of(config) == type_name), None)


def locate(
    config_class: type[BaseConfig], settings: Settings, location: Sequence[str | int]
) -> SettingLocation:
    """Turn a pydantic location into a position in the settings.

    A pydantic location also contains parts that no user wrote: the type of an alternative, and at
    the end the members of a plain union such as `int | None`.
    """
    path: list[str | int] = []
    candidates: Sequence[type[BaseConfig]] = [config_class]
    parents: Sequence[type[BaseConfig]] = []
    value: Any = settings
    for part in location:
        if isinstance(value, Mapping) and len(candidates) > 1:
            candidates = [config for config in candidates if type_of(config) == part]
        elif isinstance(value, Mapping) and isinstance(part, str):
            parents = candidates
            candidates = [inner for config in parents for inner in configs_of(config, part)]
            value = value.get(part)
            path.append(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None  # a tuple may miss its last
            path.append(part)
    return SettingLocation(tuple(path), candidates, parents)


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings by their dotted names; lists are values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, old, new) of the settings in which two configs, or dumps, differ."""
    if isinstance(old, BaseConfig) and isinstance(new, BaseConfig):
        old, new = old.model_dump(), new.model_dump()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            inner = f"{name}.{key}" if name else str(key)
            yield from differences(old.get(key), new.get(key), inner)
    elif old != new:
        yield name, old, new


def fields_with_role(config_class: type[BaseConfig], *roles: SettingRole) -> list[str]:
    """Return the names of the fields that have one of these roles."""
    fields = config_class.model_fields.items()
    return [name for name, field in fields if any(role in field.metadata for role in roles)]


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_STRICT = ConfigDict(arbitrary_types_allowed=True, strict=True)


def check_types(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function raise ArgumentError for an argument whose type its annotation excludes.

    The elements of an `Iterable` are not checked, as they may arrive one by one.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # too many or too few: Python says so
            return function(*args, **kwargs)
        hints = _adapters(function)
        for name, value in arguments.items():
            is_variadic = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            for part, item in value.items() if is_variadic else [(name, value)]:
                if name in hints:
                    _check(function.__name__, part, item, *hints[name])
        return function(*args, **kwargs)

    return call


@cache
def _adapters(function: Callable[..., Any]) -> Mapping[str, tuple[Any, TypeAdapter[Any]]]:
    hints = get_type_hints(function)
    return {name: (hint, TypeAdapter(hint, config=_STRICT)) for name, hint in hints.items()}


def _check(function: str, name: str, value: object, hint: Any, adapter: TypeAdapter[Any]) -> None:
    checked = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Iterator):  # validation might read it
        checked = iter(())
    try:
        adapter.validate_python(checked)
    except ValidationError:
        expected = _format_type(hint)
        message = f"must be {expected}, but is {short_repr(value)} ({type(value).__name__})"
        raise ArgumentError(name, message, f"`help` of `{function}` describes it") from None


def _format_type(hint: Any) -> str:
    """Return an annotation without the names of modules: "str | Path"."""
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
