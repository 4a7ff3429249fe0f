"""Routes of the server: one for each task, models, health and metrics.

Answers are JSON; errors are problem details (RFC 9457) with the status of HTTP, never 200 with an
error inside, and never repeat the request, a path or an address.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from heedful.serving import completions, documents, inspector, libretranslate
from heedful.serving.inspector import Explainer
from heedful.serving.limits import check_inputs, check_options
from heedful.serving.metrics import ServerMetrics
from heedful.serving.openapi import describe_routes
from heedful.serving.problems import ProblemError, describe_errors, invalid_value, to_problem
from heedful.serving.protocol import ItemError, ModelInfo, StreamPart
from heedful.serving.service import Service, choose_model, find_model
from heedful.serving.settings import ServerSettings
from heedful.tasks.registry import task_routes
from heedful.version import VERSION

Reload = Callable[[], Awaitable[None]]
Timeout = Annotated[
    float,
    Header(alias="X-Request-Timeout", ge=1, description="seconds; may only shorten --timeout"),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class PredictRequest(_Body):
    """Inputs of one task."""

    inputs: Annotated[list[Any], Field(min_length=1)]
    """Texts, or values like `example` of the model."""
    model: str | None = None
    """Name of a model; by default the first of the task."""
    options: dict[str, Any] = {}
    """As `options` of the model describes."""
    attention: bool = False
    """Return the attention of each layer, too."""
    text_only: bool = False
    """Return only the text of each result, which is faster."""
    stream: bool = False
    """Send the result of the only input as it grows, as server-sent events."""


class PredictResponse(BaseModel):
    """A result for each input, in order."""

    model: str
    results: list[dict[str, Any]]


class ModelDescription(BaseModel):
    """The public description of a run."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "heedful"
    task: str
    route: str
    step: int | None
    parameters: int
    mechanisms: list[dict[str, Any]]
    capabilities: list[str]
    options: dict[str, Any]
    example: Any
    languages: list[str] | None
    input: dict[str, Any]

    @classmethod
    def from_info(cls, info: ModelInfo) -> "ModelDescription":
        """Return the description of a run; `id` is its name."""
        fields = info._asdict() | {"id": info.name, "route": f"/v1/{info.route}"}
        del fields["name"]
        return cls.model_validate(fields)


class ModelList(BaseModel):
    """The served runs, in the order of the command line; the shape is that of OpenAI."""

    object: str = "list"
    data: list[ModelDescription]


class Health(BaseModel):
    """Whether the server works."""

    status: str


def build_app(
    service: Service,
    settings: ServerSettings,
    metrics: ServerMetrics,
    reload: Reload,
    explainer: Explainer | None = None,
) -> FastAPI:
    """Return the application; `Guard` stands before it."""
    app = FastAPI(
        title="heedful",
        version=VERSION,
        description="Predictions of trained runs.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    if origins := settings.allowed_origin:
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.include_router(_task_router(service, settings))
    app.include_router(_model_router(service, reload))
    for module in (documents, libretranslate, completions):
        app.include_router(module.build_router(service, settings))
    if explainer is not None:
        app.include_router(inspector.build_router(service, settings, explainer))
    app.include_router(_health_router(service, metrics))
    app.openapi = partial(describe_routes, app, service, settings)  # type: ignore[method-assign]
    app.add_exception_handler(ProblemError, _answer_problem)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(Exception, _answer_bug)
    return app


# ----- tasks


def _task_router(service: Service, settings: ServerSettings) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["tasks"])
    for task, route in task_routes().items():
        router.add_api_route(
            f"/{route}",
            _task_endpoint(service, settings, route),
            methods=["POST"],
            name=route,
            summary=f"Predict with a model of {task}.",
            response_model=PredictResponse,
            responses={200: {"content": {"text/event-stream": {}}}, **describe_errors()},
        )
    return router


def _task_endpoint(
    service: Service, settings: ServerSettings, route: str
) -> Callable[..., Awaitable[Response]]:
    async def predict(body: PredictRequest, timeout: Timeout = 3600.0) -> Response:
        model = choose_model(service, route, body.model)
        check_inputs(settings, model, body.inputs)
        check_options(settings, model, body.options)
        if body.stream:
            return await _stream(service, model, body, timeout)
        results = await service.predict(
            model.name,
            body.inputs,
            body.options,
            timeout=timeout,
            need_layers=body.attention,
            text_only=body.text_only,
        )
        for index, result in enumerate(results):
            if isinstance(result, ItemError):
                raise to_problem(result, f"inputs.{index}")
        return JSONResponse({"model": model.name, "results": results})

    return predict


async def _stream(
    service: Service, model: ModelInfo, body: PredictRequest, timeout: float
) -> Response:
    """Return server-sent events; an error before the first is an answer of its own."""
    if len(body.inputs) != 1:
        raise ProblemError(422, "only one input can be streamed", "send one", field="inputs")
    parts = service.stream(model.name, body.inputs[0], body.options, timeout=timeout)
    first = await anext(aiter(parts))
    return StreamingResponse(_format_events(first, parts), media_type="text/event-stream")


async def _format_events(first: StreamPart, parts: AsyncIterator[StreamPart]) -> AsyncIterator[str]:
    try:
        async with aclosing(parts):  # type: ignore[type-var]
            yield _format_part(first)
            async for part in parts:
                yield _format_part(part)
    except ProblemError as problem:
        yield format_event("error", problem.to_json())


def _format_part(part: StreamPart) -> str:
    if part.result is None:
        return format_event("token", {"text": part.text})
    token = format_event("token", {"text": part.text}) if part.text else ""
    return token + format_event("done", {"result": part.result})


def format_event(name: str, value: Any) -> str:
    """Return a server-sent event with JSON."""
    return f"event: {name}\ndata: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n"


# ----- models and health


def _model_router(service: Service, reload: Reload) -> APIRouter:
    router, errors = APIRouter(prefix="/v1/models", tags=["models"]), describe_errors()

    @router.get("", response_model=ModelList, responses=errors)
    async def list_models() -> ModelList:
        """List the served runs."""
        models = service.models.values()
        return ModelList(data=[ModelDescription.from_info(model) for model in models])

    @router.get("/{name}", response_model=ModelDescription, responses=errors)
    async def show_model(name: str) -> ModelDescription:
        """Describe a run."""
        return ModelDescription.from_info(find_model(service, name, "name"))

    @router.post(
        "/{name}/reload",
        response_model=ModelDescription,
        responses={**errors, 409: {**errors[404], "description": "it cannot be loaded"}},
    )
    async def reload_model(name: str) -> ModelDescription:
        """Load the run folders again; requests are answered all the while."""
        find_model(service, name, "name")
        await asyncio.shield(asyncio.ensure_future(reload()))
        return ModelDescription.from_info(find_model(service, name, "name"))

    return router


def _health_router(service: Service, metrics: ServerMetrics) -> APIRouter:
    router = APIRouter(tags=["health"])

    async def live() -> Health:
        """Return that the server runs."""
        return Health(status="ok")

    async def ready() -> Health:
        """Return whether a worker has made a real prediction and accepts requests."""
        if not service.is_ready:
            raise ProblemError(503, "no worker is ready", "try again", retry_after=1.0)
        return Health(status="ok")

    router.add_api_route("/livez", live, response_model=Health, responses=describe_errors())
    for path in ("/readyz", "/health"):
        router.add_api_route(
            path, ready, name=path[1:], response_model=Health, responses=describe_errors()
        )

    text: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @router.get("/metrics", response_class=Response, responses=text | describe_errors())
    async def show_metrics() -> Response:
        """Show counts and times in the format of Prometheus."""
        return Response(metrics.format(), media_type="text/plain; version=0.0.4")

    return router


# ----- errors


def _to_response(request: Request, problem: ProblemError) -> Response:
    path = request.url.path
    return JSONResponse(problem.to_body(path), problem.status, problem.to_headers(path))


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return _to_response(request, error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "GET /openapi.json lists the routes" if error.status_code in (404, 405) else ""
    messages = {404: "there is no such route", 405: "this route has other methods"}
    message = messages.get(error.status_code, "the request cannot be answered")
    response = _to_response(request, ProblemError(error.status_code, message, hint))
    response.headers.update(error.headers or {})
    return response


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _to_response(request, invalid_value(error.errors()[0]))


async def _answer_bug(request: Request, error: Exception) -> Response:
    problem = ProblemError(500, "the server failed", "its log has the cause")
    return _to_response(request, problem)
