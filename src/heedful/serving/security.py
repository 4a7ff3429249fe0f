"""Checks before all routes: access, sizes, and clients that hang up.

`Guard` is ASGI middleware around the whole application: it checks Host, Origin and token, reads the
body within its limits, cancels the route when the client hangs up, and counts answers. Invariant: a
request that it has passed on gets an answer before the server ends.
"""

import asyncio
import hmac
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from email.message import Message
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import urlsplit

from heedful.serving.metrics import ServerMetrics
from heedful.serving.problems import LIBRETRANSLATE_PATHS, ProblemError, shutting_down
from heedful.serving.settings import LOOPBACK_NAMES, ServerSettings

ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

HEALTH_PATHS = ("/livez", "/readyz", "/health")
"""They need no token: load balancers have none."""
_FORM = "application/x-www-form-urlencoded"
_HANG_UP = 499  # as nginx counts it; nobody gets it
_SAFE_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._names = {*LOOPBACK_NAMES, settings.host, *settings.allowed_host}
        is_private = settings.is_loopback and not settings.token
        self._checks_names = is_private or bool(settings.allowed_host)
        self._running: set[asyncio.Task[Any]] = set()  # what is being answered
        self._late: set[asyncio.Task[Any]] = set()

    async def drain(self, seconds: float) -> None:
        """Wait until all requests are answered; those that take longer get 503."""
        if self._running:
            _, self._late = await asyncio.wait(self._running, timeout=seconds)
            for task in self._late:
                task.cancel()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither web sockets nor anything to start up
        status, start = _HANG_UP, asyncio.get_running_loop().time()

        async def send_counted(message: ASGIMessage) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SAFE_HEADERS]
            await send(message)

        try:
            headers = _unique_headers(scope)
            self._check_caller(scope["method"], scope["path"], headers)
            body = await self._read_body(headers, receive, scope["path"])
            if body is not None:
                await self._run(scope, body, receive, send_counted)
        except ProblemError as problem:
            if status == _HANG_UP:  # else it is a stream that has begun: it is cut off
                await send_problem(problem, scope["path"], send_counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = asyncio.get_running_loop().time() - start
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(seconds)

    def _check_caller(self, method: str, path: str, headers: dict[str, str]) -> None:
        """Raise ProblemError for a page of another site, another name of this host or no token."""
        host, settings = headers.get("host", ""), self._settings
        name = _name_of(host)
        if self._checks_names and name not in self._names:
            _refuse(403, "this server does not go by that name", "name it with --allowed-host")
        origin = headers.get("origin")
        is_same_site = origin is None or origin.partition("://")[2] == host
        if not is_same_site and origin not in settings.allowed_origin:
            _refuse(403, "pages of other sites may not use it", "allow it with --allowed-origin")
        is_cross_site = headers.get("sec-fetch-site") == "cross-site" and origin is None
        if is_cross_site and method not in ("GET", "HEAD"):
            _refuse(403, "pages of other sites may not use it", "allow it with --allowed-origin")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # A token may be `api_key` in the body: /translate then checks it.
        is_page = settings.ui and (path == "/" or path.startswith("/page/"))
        is_open = path in HEALTH_PATHS or (path in LIBRETRANSLATE_PATHS and not scheme) or is_page
        if not is_open and method != "OPTIONS":
            check_token(settings, token if scheme.lower() == "bearer" else None)

    async def _read_body(
        self, headers: dict[str, str], receive: Receive, path: str
    ) -> bytes | None:
        """Return the whole body; None if the client hangs up. Raises ProblemError over a limit."""
        most = self._settings.max_body
        if headers.get("content-encoding", "identity").lower() != "identity":
            _refuse(415, "compressed bodies are not read", "send it as it is")
        with suppress(ValueError):
            if int(headers.get("content-length", "0")) > most:
                _refuse(413, f"the body is longer than {most:,} bytes", "send it in parts")
        parts: list[bytes] = []
        size, has_more = 0, True
        try:
            async with asyncio.timeout(self._settings.timeout):
                while has_more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        _refuse(413, f"the body is longer than {most:,} bytes", "send it in parts")
                    has_more = message.get("more_body", False)
        except TimeoutError:
            _refuse(408, "the body did not come in time", "send it faster, or in parts")
        body = b"".join(parts)
        if body:
            _check_content(headers.get("content-type", ""), body, path in LIBRETRANSLATE_PATHS)
        return body

    async def _run(
        self, scope: MutableMapping[str, Any], body: bytes, receive: Receive, send: Send
    ) -> None:
        """Run the application; cancel it when the client hangs up."""
        task = asyncio.current_task()
        assert task is not None
        exchange = _Exchange(task, body, receive, send)
        self._running.add(task)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if task in self._late:
                raise shutting_down() from None
            if not exchange.has_hung_up:
                raise
        finally:
            exchange.close()
            self._running.discard(task)


class _Exchange:
    """A request whose body was read, and its answer; a hang-up before that cancels the task."""

    def __init__(self, task: asyncio.Task[Any], body: bytes, receive: Receive, send: Send) -> None:
        self._task, self._send = task, send
        self._body: bytes | None = body
        self._is_answered = self.has_hung_up = False
        self._hang_up = asyncio.create_task(self._wait_for_hang_up(receive))

    async def receive(self) -> ASGIMessage:
        body, self._body = self._body, None
        if body is None:
            return await asyncio.shield(self._hang_up)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: ASGIMessage) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._is_answered = True  # the server then reports a hang-up, too
        await self._send(message)

    def close(self) -> None:
        self._hang_up.cancel()

    async def _wait_for_hang_up(self, receive: Receive) -> ASGIMessage:
        message = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        if not self._is_answered:
            self.has_hung_up = True
            self._task.cancel()
        return message


def check_token(settings: ServerSettings, token: str | None) -> None:
    """Raise ProblemError unless the token is that of the server, if it has one."""
    expected = settings.token
    if expected and not (token and hmac.compare_digest(token.encode(), expected.encode())):
        _refuse(401, "the token is missing or wrong", "send `Authorization: Bearer TOKEN`")


@lru_cache
def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    return urlsplit(f"//{host}").hostname or ""


def _unique_headers(scope: MutableMapping[str, Any]) -> dict[str, str]:
    """Return headers by name in lower case; the first of several decides."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return headers


def _check_content(content_type: str, body: bytes, may_be_form: bool) -> None:
    """Raise ProblemError unless a body is JSON that every program reads alike, or a form."""
    if content_type == "application/json":  # as nearly all; the parser is slow
        check_json_text(body)
        return
    message = Message()
    message["content-type"] = content_type
    charset = str(message.get_param("charset", "utf-8")).lower()
    kind = message.get_content_type() if content_type else ""
    kinds = ("application/json", _FORM) if may_be_form else ("application/json",)
    if charset not in ("utf-8", "utf8", "us-ascii") or kind not in kinds:
        hint = "send Content-Type: application/json, as `curl --json` does"
        _refuse(415, "this type of body is not read", hint)
    if kind != _FORM:
        check_json_text(body)


def check_json_text(body: bytes) -> None:
    """Raise ProblemError unless it is JSON of RFC 8259 without lone surrogates and inf."""
    try:
        value = _STRICT_JSON.decode(body.decode())
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        _refuse(400, "the body has halves of surrogate pairs or is not UTF-8", "send UTF-8")
    except RecursionError:
        _refuse(400, "the body is nested too deeply", "send fewer levels")
    except ValueError:
        _refuse(400, "the body is no JSON", 'send such as {"inputs": ["a text"]}')


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float)


def _refuse(status: int, message: str, hint: str) -> NoReturn:
    raise ProblemError(status, message, hint)


async def send_problem(problem: ProblemError, path: str, send: Send) -> None:
    """Answer with a problem, and close the connection: the body may not have been read."""
    body = json.dumps(problem.to_body(path)).encode()
    headers = problem.to_headers(path) | {"content-length": str(len(body)), "connection": "close"}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
