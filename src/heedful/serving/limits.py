"""Limits of a server on inputs and options: as checks, and as JSON schema of OpenAPI."""

from collections.abc import Mapping
from typing import Any

from heedful.errors import format_count
from heedful.serving.problems import ProblemError
from heedful.serving.protocol import ModelInfo
from heedful.serving.settings import ServerSettings


def check_inputs(settings: ServerSettings, model: ModelInfo, inputs: list[Any]) -> None:
    """Raise ProblemError for more inputs, or longer texts, than the server takes."""
    if len(inputs) > settings.max_inputs:
        message = f"a request has at most {format_count(settings.max_inputs, 'input')}"
        raise ProblemError(422, message, "send several requests", field="inputs")
    for index, value in enumerate(inputs):
        if "contentEncoding" not in model.input and _is_too_long(value, settings.max_characters):
            message = f"a text has at most {format_count(settings.max_characters, 'character')}"
            raise ProblemError(422, message, "split it", field=f"inputs.{index}")


def _is_too_long(value: Any, limit: int) -> bool:
    """Return whether a text in a JSON value is too long."""
    if isinstance(value, str):
        return len(value) > limit
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return len(parts) > limit or any(_is_too_long(part, limit) for part in parts)


def check_options(settings: ServerSettings, model: ModelInfo, options: Mapping[str, Any]) -> None:
    """Raise ProblemError for more outputs of an input, or longer ones, than the server computes."""
    for name, limit in option_limits(model.options, settings).items():
        value = options.get(name)
        if isinstance(value, int | float) and value > limit:
            message = f"is at most {limit} on this server"
            raise ProblemError(422, message, "lower it", field=f"options.{name}")


def limit_texts(schema: Any, max_characters: int) -> Any:
    """Return a JSON schema with a limit for texts; images have none but that of the body."""
    if isinstance(schema, list):
        return [limit_texts(part, max_characters) for part in schema]
    if not isinstance(schema, Mapping) or "contentEncoding" in schema:
        return schema
    limited = {name: limit_texts(part, max_characters) for name, part in schema.items()}
    limits = {"string": "maxLength", "array": "maxItems"}
    types = schema.get("type", ())
    names = [limits[name] for name in limits if name == types or name in types]
    return limited | dict.fromkeys(names, max_characters)


def limit_options(schema: Mapping[str, Any], settings: ServerSettings) -> dict[str, Any]:
    """Return the JSON schema of options with the limits of the server."""
    limits = option_limits(schema, settings)
    fields = {
        name: {**field, "maximum": limits[name]} if name in limits else field
        for name, field in schema.get("properties", {}).items()
    }
    return {**schema, "properties": fields}


def option_limits(schema: Mapping[str, Any], settings: ServerSettings) -> dict[str, int]:
    """Return the largest values of options whose time or memory grows with them."""
    limits = dict.fromkeys(("beam_size", "n_best", "num_samples"), settings.max_outputs)
    limits["max_new_tokens"] = settings.max_new_tokens
    fields = schema.get("properties", {})
    defaults = {name: fields[name].get("default") or 0 for name in limits if name in fields}
    return {name: max(limits[name], default) for name, default in defaults.items()}
