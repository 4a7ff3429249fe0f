"""The OpenAPI description of a server: its routes, with the models and limits of now."""

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from heedful.serving import completions, libretranslate
from heedful.serving.limits import limit_options, limit_texts
from heedful.serving.protocol import ModelInfo
from heedful.serving.service import Service
from heedful.serving.settings import ServerSettings


def describe_routes(app: FastAPI, service: Service, settings: ServerSettings) -> dict[str, Any]:
    """Return the OpenAPI description; requests are those of the models that are served now."""
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    paths, schemas = schema["paths"], schema["components"]["schemas"]
    for route in {model.route for model in service.models.values()}:
        models = [model for model in service.models.values() if model.route == route]
        body = {"schema": _describe_request(models, settings, schemas)}
        paths[f"/v1/{route}"]["post"]["requestBody"]["content"] = {"application/json": body}
        if route == "translate":
            fields, options = schemas["DocumentsRequest"]["properties"], body["schema"]
            fields["options"] = options["properties"]["options"]
            fields["documents"]["maxItems"] = settings.max_inputs
    paths["/translate"]["post"]["requestBody"] = libretranslate.describe_body(service, settings)
    completions.limit_schema(schemas["CompletionRequest"], settings)
    return schema


def _describe_request(
    models: list[ModelInfo], settings: ServerSettings, schemas: dict[str, Any]
) -> dict[str, Any]:
    schema: dict[str, Any] = deepcopy(schemas["PredictRequest"])
    fields = schema["properties"]
    fields["model"]["anyOf"][0]["enum"] = [model.name for model in models]
    inputs = [limit_texts(model.input, settings.max_characters) for model in models]
    fields["inputs"] |= {"items": _any_of(inputs), "maxItems": settings.max_inputs}
    fields["inputs"]["examples"] = [[model.example] for model in models]
    fields["options"] = _any_of([limit_options(model.options, settings) for model in models])
    # Streams have one input.
    schema["if"] = {"properties": {"stream": {"const": True}}, "required": ["stream"]}
    schema["then"] = {"properties": {"inputs": {"maxItems": 1}}}
    return schema


def _any_of(schemas: list[Any]) -> Any:
    different = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return {"anyOf": different} if len(different) > 1 else different[0]
