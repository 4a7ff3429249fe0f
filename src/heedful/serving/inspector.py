"""The inspector: a page on which attention is edited, and the route that explains a prediction.

Explanations run in a worker process of their own, one at a time, so that predictions do not wait
for them; one that takes too long ends that process alone.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from heedful.errors import HeedfulError
from heedful.plotting.html import list_assets, read_asset, render_served_page
from heedful.plotting.svg import css_variables
from heedful.serving.limits import check_inputs, check_options
from heedful.serving.problems import ProblemError, describe_errors, to_problem
from heedful.serving.protocol import ExplainCall, Item, ItemError
from heedful.serving.service import Service
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import Supervisor, WorkerLink, worker_lost
from heedful.serving.worker import ServingJob

_POLICY = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_PALETTE = "palette.css"
_TYPES = {"js": "text/javascript", "css": "text/css"}
_item_ids = count(1)


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


class Explainer:
    """Explanations of all runs, by a worker process of their own."""

    def __init__(
        self, job: ServingJob, settings: ServerSettings, report: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._link: WorkerLink | None = None
        self._is_ready = asyncio.Event()
        self._lock = asyncio.Lock()
        self.supervisor = Supervisor(
            job, "inspector", on_ready=self._use, on_lost=self._lose, report=report
        )

    async def _use(self, link: WorkerLink) -> None:
        self._link = link
        self._is_ready.set()

    def _lose(self, link: WorkerLink) -> None:
        if self._link is link:
            self._link = None
            self._is_ready.clear()

    async def explain(
        self,
        model: str,
        value: Any,
        options: Mapping[str, Any],
        edits: Sequence[Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Return an explanation as JSON; raises ProblemError, 504 if it takes too long."""
        async with self._lock:
            call = ExplainCall(model, Item(next(_item_ids), value), options, edits)
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


def build_router(service: Service, settings: ServerSettings, explainer: Explainer) -> APIRouter:
    """Return the page, its files and the route that explains."""
    router = APIRouter(tags=["inspector"])
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

    @router.post("/v1/explain", responses=describe_errors())
    async def explain(body: ExplainRequest) -> JSONResponse:
        """Explain a prediction: layers, the best tokens of each step, checks."""
        model = body.model
        if model not in service.models:
            hint = "GET /v1/models lists the models"
            raise ProblemError(404, "no model of this name is here", hint, field="model")
        info = service.models[model]
        check_inputs(settings, info, [body.input])
        check_options(settings, info, body.options)
        return JSONResponse(await explainer.explain(model, body.input, body.options, body.edits))

    return router
