"""The front process of `heedful serve`: sockets, signals, workers and how it ends.

SIGTERM or Ctrl-C drains: admitted requests are answered, new ones get 503; a second one ends at
once. SIGHUP loads all runs again. Invariant: no process is left when this one has ended.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heedful.errors import ConfigError, CorruptRunError, HeedfulError, RunError
from heedful.serving.app import build_app
from heedful.serving.inspector import Explainer
from heedful.serving.metrics import ServerMetrics
from heedful.serving.problems import ProblemError, shutting_down
from heedful.serving.scheduler import Scheduler
from heedful.serving.security import Guard
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import Supervisor, WorkerLink
from heedful.serving.worker import ServingJob

_BACKLOG = 2048  # connections; as uvicorn
_HEADER_BYTES = 65_536
_CLOSING_SECONDS = 5.0  # for answers that are being written, and processes that are killed


class _HTTPServer(uvicorn.Server):
    """Leaves signals to `Server`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _JoinedWrites:
    """A transport that sends what is written in one step of the event loop as one piece.

    uvicorn writes headers and body one after the other. A process that is killed between them would
    leave an answer that has begun, which no load balancer can get from another server.
    """

    def __init__(self, transport: asyncio.Transport, unread_timeout: float) -> None:
        """`unread_timeout` seconds after it was closed, what the client has not read is dropped."""
        self._transport, self._parts = transport, bytearray()
        self._unread_timeout = unread_timeout
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if data and not self._parts:
            self._loop.call_soon(self._flush)
        self._parts += data

    def close(self) -> None:
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(self._unread_timeout, self._transport.abort)

    def _flush(self) -> None:
        parts, self._parts = self._parts, bytearray()
        if parts:
            self._transport.write(parts)


class HTTPProtocol(HttpToolsProtocol):
    """Ends a connection whose headers are late or long or whose answer is not read."""

    header_timeout = 10.0
    unread_timeout = 30.0
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        joined = _JoinedWrites(transport, self.unread_timeout)
        super().connection_made(joined)  # type: ignore[arg-type]
        self._wait_for_headers()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_headers()
        self._header_bytes = self._header_bytes + len(data) if self._timer else 0
        if self._header_bytes > _HEADER_BYTES:
            self.transport.close()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self.unread_timeout, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer:
            self._unread_timer.cancel()

    def _wait_for_headers(self) -> None:
        has_headers = self.cycle is not None and not self.cycle.response_complete
        if has_headers and self._timer:
            self._timer.cancel()
            self._timer = None
        elif not has_headers and not self._timer:
            self._timer = self.loop.call_later(self.header_timeout, self.transport.close)


class Server:
    """A server of runs, one worker for each job."""

    def __init__(
        self,
        jobs: Sequence[ServingJob],
        settings: ServerSettings,
        *,
        announce: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        """`announce` prints the line that says where what is served; `report` prints others."""
        self._settings, self._announce, self._report = settings, announce, report
        self._metrics = ServerMetrics()
        self._scheduler = Scheduler(settings, self._metrics)
        self._socket = listen(settings)
        self._supervisors = [
            Supervisor(
                job,
                f"worker {number}" if len(jobs) > 1 else "worker",
                on_ready=self._use_worker,
                on_lost=self._lose_worker,
                on_steps=self._metrics.decoding_steps.inc,
                report=report,
                max_restarts=settings.max_restarts,
            )
            for number, job in enumerate(jobs, start=1)
        ]
        explainer = Explainer(jobs[0], settings, report) if settings.ui else None
        app = build_app(self._scheduler, settings, self._metrics, self._reload, explainer)
        if explainer is not None:
            self._supervisors.append(explainer.supervisor)
        self._guard = Guard(app, settings, self._metrics)
        limits = {"header_timeout": settings.header_timeout, "unread_timeout": settings.timeout}
        self._http = _HTTPServer(
            uvicorn.Config(
                self._guard,
                http=type("_", (HTTPProtocol,), limits),
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nothing here asks for the address of a client
                server_header=False,
                ws="none",
                limit_concurrency=settings.max_connections,
                timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]
                timeout_graceful_shutdown=_CLOSING_SECONDS,  # type: ignore[arg-type]
            )
        )
        self._workers: asyncio.Task[None]
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where the server listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def run(self) -> None:
        """Serve until a signal comes. Raises HeedfulError if that is not possible."""
        self._handle_signals()
        http = asyncio.create_task(self._http.serve([self._socket]))
        self._workers = workers = asyncio.create_task(self._run_workers())
        try:
            await asyncio.wait({http, workers}, return_when=asyncio.FIRST_COMPLETED)
            if workers.done() and not workers.cancelled():
                workers.result()  # it only ends by an error
        except HeedfulError as error:
            raise _startup_error(error) from None
        finally:
            workers.cancel()
            links = self._kill_workers()
            self._http.should_exit = True
            with suppress(asyncio.CancelledError):
                await http
            if links:
                await asyncio.wait([link.died for link in links], timeout=_CLOSING_SECONDS)

    async def _run_workers(self) -> None:
        await asyncio.gather(*(supervisor.start() for supervisor in self._supervisors))
        names = ", ".join(
            f"{model.name} ({model.task})" for model in self._scheduler.models.values()
        )
        gc.freeze()  # what is there now stays; a collection that walks it would delay answers
        self._announce(f"{self.url} serves {names}")
        await asyncio.gather(*(supervisor.keep_alive() for supervisor in self._supervisors))

    async def _use_worker(self, link: WorkerLink) -> None:
        await self._scheduler.measure(link)
        self._scheduler.add_worker(link)

    def _lose_worker(self, link: WorkerLink) -> None:
        if link in self._scheduler.links:
            self._scheduler.remove_worker(link)
            self._metrics.restarts.inc()

    async def _reload(self) -> None:
        """Load all runs again; raises ProblemError, and keeps the old ones, if that fails."""
        for supervisor in self._supervisors:
            try:
                await supervisor.reload(self._scheduler.drain_worker)
            except HeedfulError as error:
                if self._scheduler.is_draining:
                    raise shutting_down() from None
                self._report(f"not reloaded: {error}")
                message = "a run cannot be loaded; the one before is still served"
                raise ProblemError(409, message, "the log of the server has the cause") from None
        self._report("reloaded all runs")

    # ----- signals

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            number: partial(self._stop, number) for number in (signal.SIGTERM, signal.SIGINT)
        }
        if sys.platform != "win32":
            handlers[signal.SIGHUP] = lambda: self._start(self._reload_by_signal())
        for number, handler in handlers.items():
            signal.signal(number, lambda *_, call=handler: loop.call_soon_threadsafe(call))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_by_signal(self) -> None:
        with suppress(ProblemError):  # it was reported
            await self._reload()

    def _stop(self, number: int) -> None:
        if not self._scheduler.is_draining:
            self._scheduler.is_draining = True
            self._report("shutting down once requests are answered; a second signal ends at once")
            self._start(self._drain())
            return
        self._kill_workers()
        os._exit(128 + number)

    def _kill_workers(self) -> list[WorkerLink]:
        return [link for supervisor in self._supervisors for link in supervisor.kill()]

    async def _drain(self) -> None:
        await self._guard.drain(self._settings.shutdown_timeout)
        self._workers.cancel()


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket; raises ConfigError if the address cannot be used."""
    version = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio turns off Nagle's algorithm, which adds 40 ms, only where the protocol is named.
    listening = socket.socket(version, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)  # from now on, connections wait rather than being refused
    except OSError as error:
        listening.close()
        message = f"cannot listen on {settings.host}, port {settings.port}: {error.strerror}"
        raise ConfigError("--port", message, "choose another --port; 0 is any free one") from None
    return listening


def _startup_error(error: HeedfulError) -> HeedfulError:
    """Return an error that ends with exit code 2: a run that is altered can be replaced."""
    if isinstance(error, CorruptRunError):
        return RunError(error.location, error.message, error.hint)
    return error
