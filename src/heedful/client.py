"""A client of `heedful serve`; it needs neither torch nor any package besides Python's own.

    client = heedful.Client("http://127.0.0.1:8000")
    client.translate("Caecilius est in horto.")["text"]

Invariant: a request is sent again only where the server did not answer it: 429, 503, or a
connection that was kept open and is closed by now.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, overload
from urllib.parse import quote, urlsplit

from heedful.errors import ArgumentError, HeedfulError, check

DEFAULT_URL = "http://127.0.0.1:8000"
_RETRIED = (429, 503)
_MAX_CONNECTIONS = 8  # that are kept open between requests


class ServerError(HeedfulError):
    """A request that a server did not answer, or answered with an error."""

    def __init__(
        self,
        location: str,
        message: str,
        hint: str,
        *,
        status: int | None = None,
        field: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(location, message, hint)
        self.status = status
        """Status of HTTP; None if there was no answer."""
        self.field = field
        """Which part of the request is the cause, such as inputs.3."""
        self.retry_after = retry_after
        """Seconds after which the server may have time."""


class Client:
    """Predicts with the runs of a server; several threads may use it at the same time.

    `token` is by default that of the environment variable HEEDFUL_TOKEN. A busy server is asked
    again until `timeout`, in seconds, is over, at most `max_retries` times.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 5,
    ) -> None:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname
        check(is_url, "url", f"{url!r} is no address", f"write {DEFAULT_URL}", ArgumentError)
        self.url, self.timeout, self.max_retries = url.rstrip("/"), timeout, max_retries
        self._class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address, self._prefix = (parts.hostname or "", parts.port), parts.path.rstrip("/")
        self._token = token or os.environ.get("HEEDFUL_TOKEN")
        self._connections: list[HTTPConnection] = []

    def __repr__(self) -> str:
        return f"<Client: {self.url}>"

    def close(self) -> None:
        """Close the connections; the next request opens another."""
        while self._connections:
            self._connections.pop().close()

    def models(self) -> list[dict[str, Any]]:
        """Return what the server says about its models: task, route, options, an example."""
        return list(self._request("GET", "/v1/models")["data"])

    def is_ready(self) -> bool:
        """Return whether the server answers requests."""
        try:
            self._request("GET", "/readyz", num_retries=0)
        except ServerError:
            return False
        return True

    def reload(self, model: str) -> dict[str, Any]:
        """Load a model again from its run folder; return what the server says about it."""
        return dict(self._request("POST", f"/v1/models/{quote(model, safe='')}/reload"))

    def predict(
        self,
        route: str,
        inputs: Sequence[Any],
        *,
        model: str | None = None,
        attention: bool = False,
        text_only: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a result for each input, in order.

        The route is translate, generate, classify or another that `models` lists; the model by
        default its first. With `attention` results have the weights of each layer.
        """
        body = {
            "inputs": list(inputs),
            "model": model,
            "options": dict(options or {}),
            "attention": attention,
            "text_only": text_only,
        }
        return list(self._request("POST", f"/v1/{route}", body)["results"])

    def stream(
        self,
        route: str,
        value: Any,
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Iterator[str]:
        """Yield the text of a result as it grows."""
        body = {"inputs": [value], "model": model, "options": dict(options or {}), "stream": True}
        connection, response = self._open("POST", f"/v1/{route}", body)
        event = ""
        try:
            for event, data in _read_events(response):
                if event == "token":
                    yield data["text"]
                elif event == "error":
                    raise self._problem(data["status"], data, None)
        except (OSError, HTTPException) as error:
            raise self._no_answer(error) from None
        finally:
            connection.close()
        if event != "done":
            message, hint = "the answer was cut off", "the server may have ended; try again"
            raise ServerError(self.url, message, hint)

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self, texts: str, *, model: str | None = None, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]: ...
    def translate(
        self,
        texts: str | Iterable[str],
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Translate a text, or texts; options are such as {"beam_size": 5}."""
        inputs = [texts] if isinstance(texts, str) else list(texts)
        results = self.predict("translate", inputs, model=model, options=options)
        return results[0] if isinstance(texts, str) else results

    def translate_document(
        self, text: str, document_format: str = "document", *, model: str | None = None
    ) -> str:
        """Translate the sentences of a text, or with "html" of HTML; all else is kept."""
        body = {"documents": [text], "format": document_format, "model": model}
        return str(self._request("POST", "/v1/documents", body)["documents"][0])

    def generate(
        self,
        prompt: str = "",
        *,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt and its continuation; options are such as {"temperature": 0.5}."""
        (result,) = self.predict("generate", [prompt], model=model, options=options)
        return str(result["text"])

    # ----- HTTP

    def _request(
        self, method: str, path: str, body: Any = None, *, num_retries: int | None = None
    ) -> Any:
        connection, response = self._open(method, path, body, num_retries=num_retries)
        try:
            content = response.read()
        except (OSError, HTTPException) as error:
            connection.close()
            raise self._no_answer(error) from None
        self._keep(connection, response)
        try:
            return json.loads(content)
        except ValueError:
            message, hint = "the answer is no JSON", "check the address: is it heedful serve?"
            raise ServerError(self.url, message, hint, status=response.status) from None

    def _open(
        self, method: str, path: str, body: Any = None, *, num_retries: int | None = None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request, again if the server is busy; return the start of its answer."""
        content = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + self.timeout
        remaining = self.max_retries if num_retries is None else num_retries
        while True:
            connection, response = self._send(method, path, content)
            if response.status < 400:
                return connection, response
            problem = self._read_problem(connection, response)
            wait = 1.0 if problem.retry_after is None else problem.retry_after
            is_retried = problem.status in _RETRIED and remaining > 0
            if not is_retried or time.monotonic() + wait > deadline:
                raise problem
            remaining -= 1
            time.sleep(wait)

    def _send(
        self, method: str, path: str, content: bytes | None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        headers = {"Accept": "application/json, text/event-stream"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        while True:
            try:
                connection, is_reused = self._connections.pop(), True
            except IndexError:  # none is kept, or other threads have taken them
                connection, is_reused = self._connect(), False
            try:
                connection.request(method, self._prefix + path, content, headers)
                return connection, connection.getresponse()
            except (OSError, HTTPException) as error:
                connection.close()
                is_closed = isinstance(error, ConnectionError | HTTPException)
                if not (is_reused and is_closed):
                    raise self._no_answer(error) from None

    def _connect(self) -> HTTPConnection:
        host, port = self._address
        return self._class(host, port, timeout=self.timeout)

    def _keep(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        if response.will_close or len(self._connections) >= _MAX_CONNECTIONS:
            connection.close()
        else:
            self._connections.append(connection)

    def _read_problem(self, connection: HTTPConnection, response: HTTPResponse) -> ServerError:
        try:
            problem = json.loads(response.read())
        except (OSError, HTTPException, ValueError):
            problem = {}
        self._keep(connection, response)
        problem = problem if isinstance(problem, dict) else {}
        return self._problem(response.status, problem, response.headers.get("Retry-After"))

    def _problem(
        self, status: int, problem: Mapping[str, Any], retry_after: str | None
    ) -> ServerError:
        field = problem.get("field", "")
        message = problem.get("detail") or f"the server answered with status {status}"
        return ServerError(
            self.url,
            f"{field}: {message}" if field else message,
            problem.get("hint") or "see the log of the server",
            status=status,
            field=field,
            retry_after=float(retry_after) if retry_after and retry_after.isdecimal() else None,
        )

    def _no_answer(self, error: Exception) -> ServerError:
        reason = str(error) or type(error).__name__
        hint = "check the address, and that `heedful serve` runs there"
        return ServerError(self.url, f"no answer ({reason})", hint)


def _read_events(response: HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of server-sent events."""
    event = ""
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield event, json.loads(value)
