"""The inspector: a page on which attention is edited, and the route that explains a prediction.

Explanations run in a worker process of their own, one at a time, so that predictions do not wait
for them; one that takes too long ends that process alone.
"""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from heedful.errors import HeedfulError
from heedful.plotting.html import list_assets, read_asset, render_served_page
from heedful.plotting.svg import css_variables
from heedful.serving.limits import check_inputs, check_options
from heedful.serving.problems import ProblemError, describe_errors, to_problem
from heedful.serving.protocol import ExplainCall, Item, ItemError, TraceCall
from heedful.serving.service import Service, find_model
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import Supervisor, WorkerLink, worker_lost
from heedful.serving.worker import ServingJob
from heedful.storage.json_files import read_json_lines
from heedful.storage.manifest import CHECKPOINTS, SAMPLES, checkpoint_folders, locate_run

_POLICY = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_PALETTE = "palette.css"
_TYPES = {"js": "text/javascript", "css": "text/css"}
_BYTES = "application/octet-stream"
_FIGURES = {"svg": "image/svg+xml", "html": "text/html"}
_MAX_SAMPLES = 3000  # of an answer
_NICENESS = 10  # predictions go before explanations
_item_ids = count(1)
Index = Annotated[int, Field(ge=0, lt=2**31)]
ETag = Annotated[str | None, Header(description="the ETag of what the client has")]


class ExplainRequest(BaseModel):
    """An input, and what is changed in the attention of the model that reads it."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    model: str
    """Name of a model."""
    input: Any
    """A text, or a value like `example` of the model."""
    options: dict[str, Any] = {}
    """As `options` of the model describes."""
    edits: Annotated[list[dict[str, Any]], Field(max_length=100)] = []
    """Edits of attention, as `heedful show --edit` has them."""
    checkpoint: PositiveInt | None = None
    """Step of a checkpoint of the training, which predicts instead of the saved parameters."""


class RenderRequest(ExplainRequest):
    """A figure of an explanation."""

    format: Literal["svg", "html"]
    """A map as an SVG document, whose cells have `data-weight`, or a page with all maps."""
    kind: str
    """Type of the layer, as in the explanation."""
    layer: PositiveInt = 1
    """Number among the layers of its type."""
    head: PositiveInt = 1


class _Map(BaseModel):
    layer: Index = 0
    head: Index = 0


class _Tile(_Map):
    level: Index
    x: Index
    y: Index
    faint: bool = False


class _Row(_Map):
    query: Index


class Explainer:
    """Explanations of all runs, by a worker process of their own."""

    def __init__(
        self, job: ServingJob, settings: ServerSettings, report: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._folders = {run.name: locate_run(run.folders[0]) for run in job.runs}
        self._link: WorkerLink | None = None
        self._is_ready = asyncio.Event()
        self._lock = asyncio.Lock()
        self.supervisor = Supervisor(
            job._replace(niceness=_NICENESS),
            "inspector",
            on_ready=self._use,
            on_lost=self._lose,
            report=report,
        )

    async def _use(self, link: WorkerLink) -> None:
        self._link = link
        self._is_ready.set()

    def _lose(self, link: WorkerLink) -> None:
        if self._link is link:
            self._link = None
            self._is_ready.clear()

    async def explain(
        self, request: ExplainRequest, figure: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Return an explanation as JSON in bytes (`content`), or a figure of it (`text`).

        Raises ProblemError: 504 if it takes too long.
        """
        item = Item(next(_item_ids), request.input)
        fields = request.model, item, request.options, request.edits, figure, request.checkpoint
        return await self._answer(ExplainCall(*fields))

    async def read(self, call: TraceCall) -> bytes:
        """Return weights of an explanation; raises ProblemError: 404 if it is held no more."""
        content: bytes = (await self._answer(call))["content"]
        return content

    async def _answer(self, call: ExplainCall | TraceCall) -> Mapping[str, Any]:
        async with self._lock:
            try:
                async with asyncio.timeout(self._settings.timeout):
                    await self._is_ready.wait()
                    assert self._link is not None
                    (result,) = await self._link.predict(call)
            except TimeoutError:
                if self._link is not None:
                    self._link.kill()
                message = "the explanation takes too long"
                raise ProblemError(504, message, "shorten the text, or raise --timeout") from None
            except HeedfulError:
                raise worker_lost() from None
        if isinstance(result, ItemError):
            raise to_problem(result, "input")
        return result

    def read_samples(self, name: str, after: int) -> list[dict[str, Any]]:
        """Return what validations after a step logged; a line that is being written is left out."""
        samples = read_json_lines(self._folder_of(name) / SAMPLES)
        return [sample for sample in samples if sample.get("step", -1) > after]

    def list_checkpoints(self, name: str) -> list[int]:
        """Return the steps of the checkpoints that the training of a run keeps."""
        return list(checkpoint_folders(self._folder_of(name) / CHECKPOINTS))

    def _folder_of(self, name: str) -> Path:
        if name not in self._folders:
            raise ProblemError(
                404, "no run of this name is here", "GET /v1/models lists the models"
            )
        return self._folders[name]


def _add_page(router: APIRouter) -> None:
    headers = {"content-security-policy": _POLICY}

    @router.get("/", include_in_schema=False)
    async def show_page() -> Response:
        return Response(render_served_page("inspector"), media_type="text/html", headers=headers)

    @router.get("/page/{name}", include_in_schema=False)
    async def show_file(name: str) -> Response:
        media_type = _TYPES.get(name.rpartition(".")[2])
        if media_type is None or name not in (_PALETTE, *list_assets()):
            raise ProblemError(404, "there is no such file", "GET / is the page")
        content = css_variables() if name == _PALETTE else read_asset(name)
        return Response(content, media_type=media_type, headers=headers)


def _add_runs(router: APIRouter, explainer: Explainer) -> None:
    @router.get("/v1/runs/{name}/samples", responses=describe_errors())
    async def list_samples(name: str, after: int = -1) -> JSONResponse:
        """List predictions for dev examples of the validations after a step."""
        samples = await asyncio.to_thread(explainer.read_samples, name, after)
        return JSONResponse({"data": samples[-_MAX_SAMPLES:]})

    @router.get("/v1/runs/{name}/checkpoints", responses=describe_errors())
    async def list_checkpoints(name: str) -> JSONResponse:
        """List the steps of the checkpoints, which `checkpoint` of an explanation chooses from."""
        return JSONResponse({"data": explainer.list_checkpoints(name)})


def _add_traces(router: APIRouter, explainer: Explainer) -> None:
    responses = describe_errors()
    responses[200] = {"content": {_BYTES: {}}}
    responses[304] = {"description": "what the client has is right"}

    async def answer(call: TraceCall, etag: str | None) -> Response:
        # Weights of a trace never change; its id is new for each explanation.
        tag = f'"{sha256(repr(call).encode()).hexdigest()[:32]}"'
        headers = {"etag": tag, "cache-control": "private, max-age=3600, immutable"}
        if etag == tag:
            return Response(status_code=304, headers=headers)
        return Response(await explainer.read(call), media_type=_BYTES, headers=headers)

    @router.get("/v1/traces/{trace}/tile", responses=responses, response_class=Response)
    async def read_tile(
        trace: str, query: Annotated[_Tile, Query()], if_none_match: ETag = None
    ) -> Response:
        """Return 256 x 256 weights of a large map, one byte each: 255 w, rounded up.

        With `faint`, 255 w^(1/4), which tells small weights apart.
        Level 0 has all weights; a byte of the next is the largest of four. A map that ends within
        a tile is followed by zeros.
        """
        tile = query.level, query.x, query.y
        call = TraceCall(trace, query.layer, query.head, tile=tile, is_faint=query.faint)
        return await answer(call, if_none_match)

    @router.get("/v1/traces/{trace}/row", responses=responses, response_class=Response)
    async def read_row(
        trace: str, query: Annotated[_Row, Query()], if_none_match: ETag = None
    ) -> Response:
        """Return the exact weights of a query in a large map, as 32-bit floats, little-endian."""
        call = TraceCall(trace, query.layer, query.head, query.query)
        return await answer(call, if_none_match)


def build_router(service: Service, settings: ServerSettings, explainer: Explainer) -> APIRouter:
    """Return the page, its files, and the routes that explain, draw and list samples."""
    router = APIRouter(tags=["inspector"])
    _add_page(router)
    _add_runs(router, explainer)
    _add_traces(router, explainer)

    def check_request(body: ExplainRequest) -> None:
        info = find_model(service, body.model)
        check_inputs(settings, info, [body.input])
        check_options(settings, info, body.options)

    @router.post("/v1/explain", responses=describe_errors())
    async def explain(body: ExplainRequest) -> Response:
        """Explain a prediction: layers, the best tokens of each step, checks."""
        check_request(body)
        answer = await explainer.explain(body)
        return Response(answer["content"], media_type="application/json")

    @router.post("/v1/render", responses=describe_errors(), response_class=Response)
    async def render(body: RenderRequest) -> Response:
        """Draw the attention of an explained prediction."""
        check_request(body)
        figure = body.model_dump(include={"format", "kind", "layer", "head"})
        answer = await explainer.explain(body, figure)
        headers = {"content-disposition": f"attachment; filename=attention.{body.format}"}
        return Response(answer["text"], media_type=_FIGURES[body.format], headers=headers)

    return router
