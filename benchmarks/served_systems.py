"""Servers that `benchmarks.serving` measures: their commands, requests, cores and memory."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.libretranslate import LIBRETRANSLATE

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class System(NamedTuple):
    """What answers requests: a server, or without `command` calls of `predict_texts`."""

    model: str
    name: str
    device: str
    backend: str
    command: Sequence[str] = ()
    environment: Mapping[str, str] = os.environ

    @property
    def is_libretranslate(self) -> bool:
        """Whether it has the routes of LibreTranslate alone."""
        return self.name == LIBRETRANSLATE.name

    @property
    def has_metrics(self) -> bool:
        """Whether it is `heedful serve`."""
        return not self.is_libretranslate and not self.name.startswith("plain")

    @property
    def readiness_route(self) -> str:
        """What answers with 200 once it is ready."""
        return "/languages" if self.is_libretranslate else "/readyz"

    def port_arguments(self, port: int) -> list[str]:
        """Return how the command is told its port."""
        return [str(port)] if self.name.startswith("plain") else ["--port", str(port)]

    def request(self, text: str) -> bytes:
        """Return the request for a translation."""
        route = "/translate" if self.is_libretranslate else "/v1/translate"
        fields: dict[str, Any] = {"inputs": [text], "text_only": True}
        if self.is_libretranslate:
            fields = {"q": text, "source": "de", "target": "en"}
        body = json.dumps(fields).encode()
        head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


class Cores:
    """Which cores run servers; the others run the clients."""

    def __init__(self, server: Collection[int]) -> None:
        every = os.sched_getaffinity(0)
        self.server = {*server} or every
        self.clients = every - {*server} or every
        os.sched_setaffinity(0, self.clients)

    def start(
        self, command: Sequence[str], variables: Mapping[str, str] = os.environ, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a process on the cores of the server."""
        environment = {**variables, "OMP_NUM_THREADS": str(len(self.server))}
        os.sched_setaffinity(0, self.server)
        try:
            return subprocess.Popen(command, env=environment, **options)
        finally:
            os.sched_setaffinity(0, self.clients)


@contextmanager
def running(cores: Cores, system: System, port: int) -> Iterator[int]:
    """Run a server until the end of the block; yield its process id."""
    command = [*system.command, *system.port_arguments(port)]
    with cores.start(command, system.environment, stdout=subprocess.DEVNULL) as process:
        try:
            while not answers(port, system.readiness_route):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with {process.returncode}")
                time.sleep(0.2)
            yield process.pid
        finally:
            process.terminate()


def answers(port: int, path: str) -> bool:
    """Return whether a server answers with 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10):
            return True
    except OSError:  # it starts, or answers that it is not ready
        return False


def memory_mb(pid: int) -> list[int]:
    """Return the memory in MB of a process and of all that it started."""
    pids = [pid]
    for process in pids:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            pids += map(int, children.read_text().split())
    pages = [int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in pids]
    return [count * PAGE_BYTES // 2**20 for count in pages]
