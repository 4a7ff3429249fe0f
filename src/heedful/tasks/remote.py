"""Predictors of a server, which commands use in place of a run (`--server`); imports no torch.

Inputs and results are the JSON of `Predictor.parse_json` and `to_json`. A task whose requests come
from files has a function `read_remote` in its `command` module, which reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from heedful.client import Client
from heedful.errors import ConfigError

_CHUNK_SIZE = 128  # inputs of a request

ReadRemote = Callable[[str, Mapping[str, str | None], Any], "list[RemoteRequest]"]
"""Reads a file; it gets settings of the file, and the example of an input that a server shows."""


class RemotePrediction:
    """A result whose attributes are the fields that a server sent."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name not in self._fields:
            message, hint = f"a server does not send `{name}` of a result", "leave out --server"
            raise ConfigError("--server", message, hint)
        return self._fields[name]

    @property
    def alternatives(self) -> list[RemotePrediction]:
        """The next best outputs."""
        return [RemotePrediction(fields) for fields in self._fields.get("alternatives", ())]

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return dict(self._fields)


class RemoteRequest(NamedTuple):
    """An input as JSON, and how its result is made of the fields that a server sends."""

    value: Any
    build: Callable[[Mapping[str, Any]], Any] = RemotePrediction


class RemotePredictor:
    """A run of a server; its methods are those of `Predictor` that commands call."""

    options_class = dict
    notes: tuple[str, ...] = ()

    def __init__(self, server: str, route: str, name: str, read_remote: ReadRemote | None) -> None:
        self._client, self._read_remote = Client(server), read_remote
        self._route, self._name = route, name

    def read_file(
        self, path: str, settings: Mapping[str, str | None] | None = None
    ) -> list[RemoteRequest]:
        """Return the requests of a file."""
        assert self._read_remote is not None, self._route
        models = {model["id"]: model for model in self._client.models()}
        return self._read_remote(path, settings or {}, models.get(self._name, {}).get("example"))

    def predict(
        self,
        requests: Iterable[Any],
        options: Any = None,
        *,
        location: str = "",
        need_layers: bool = False,
    ) -> Iterator[Any]:
        """Yield a result for each request."""
        for chunk, results in self._predict(requests, options):
            for request, fields in zip(chunk, results, strict=True):
                yield request.build(fields)

    def predict_texts(
        self, requests: Iterable[Any], options: Any = None, *, location: str = ""
    ) -> Iterator[str]:
        """Yield only the texts of results."""
        for _, results in self._predict(requests, options, text_only=True):
            yield from (fields["text"] for fields in results)

    def stream(self, request: str, options: Any = None) -> Iterator[RemotePrediction]:
        """Yield the text of a result as it grows."""
        text = ""
        stream = self._client.stream(
            self._route, request, model=self._name, options=_to_json(options)
        )
        for part in stream:
            text += part
            yield RemotePrediction({"text": text})

    def _predict(
        self, requests: Iterable[Any], options: Any, *, text_only: bool = False
    ) -> Iterator[tuple[list[RemoteRequest], list[dict[str, Any]]]]:
        stream = iter(requests)
        while chunk := [_to_request(value) for value in islice(stream, _CHUNK_SIZE)]:
            results = self._client.predict(
                self._route,
                [request.value for request in chunk],
                model=self._name,
                text_only=text_only,
                options=_to_json(options),
            )
            yield chunk, results


def _to_request(value: Any) -> RemoteRequest:
    return value if isinstance(value, RemoteRequest) else RemoteRequest(value)


def _to_json(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if value is not None}
