"""The interface of all routes: models by name, predictions and streams; imports no torch."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from heedful.errors import choices_hint
from heedful.serving.problems import ProblemError
from heedful.serving.protocol import ModelInfo, Result, StreamPart


class Service(Protocol):
    """Predictions of all served runs; implemented by the scheduler."""

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The served runs by name, in the order of the command line."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether a worker has made a real prediction and accepts more."""
        ...

    async def predict(
        self,
        model: str,
        inputs: Sequence[Any],
        options: Mapping[str, Any],
        *,
        timeout: float | None = None,
        need_layers: bool = False,
        text_only: bool = False,
        seeds: Sequence[int] = (),
    ) -> Sequence[Result]:
        """Return a result or an error for each input, in order.

        `seeds` of the inputs count where options have none; by default their positions, from 1.
        A request that is cancelled, as its client hung up, is cancelled in the worker, too. Raises
        ProblemError: 429 if it would not be answered in time, 503 while no worker is ready or the
        server drains, 504 once `timeout` is over (by default, and at most, that of the server).
        """
        ...

    def stream(
        self, model: str, value: Any, options: Mapping[str, Any], *, timeout: float | None = None
    ) -> AsyncIterator[StreamPart]:
        """Yield the result of an input as it grows; raises as `predict`, and for an ItemError."""
        ...


def find_model(service: Service, name: str, field: str = "model") -> ModelInfo:
    """Return the model of this name, which `field` of a request has."""
    if name not in service.models:
        hint = "GET /v1/models lists the models"
        raise ProblemError(404, "no model of this name is here", hint, field=field)
    return service.models[name]


def choose_model(service: Service, route: str, name: str | None) -> ModelInfo:
    """Return the model of a request: by default the first of the route."""
    fitting = {model.name: model for model in service.models.values() if model.route == route}
    if not service.models:
        raise ProblemError(503, "no worker is ready", "try again", retry_after=1.0)
    if name is None and fitting:
        return next(iter(fitting.values()))
    if name in fitting:
        return fitting[name]
    message = "no model of this name is here" if fitting else "no model of this task is served"
    hint = choices_hint(fitting) if fitting else "GET /v1/models lists the models"
    raise ProblemError(404, message, hint, field="model")
